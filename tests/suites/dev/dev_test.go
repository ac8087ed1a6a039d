// Package dev tests the controllers against a real API server: all tests use one development cluster (`clusterctl dev`)
// as clients.
package dev

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/tests/lab/cluster"
)

// grace is the cluster's grace period for nodes that stop reporting. It is short, so that tests can wait for its end.
const grace = 3 * time.Second

// TestMain starts these for all tests.
var (
	sharedClient   *kubernetes.Clientset
	dynamicClient  *dynamic.DynamicClient
	restConfig     *rest.Config
	clusterProcess *exec.Cmd

	kubeconfigPath string // path of the cluster's kubeconfig
	programDir     string // folder of the programs under test
)

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "clusterctl-dev-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binary, err := findBundle(dir)
	if err != nil {
		return 1, err
	}
	programDir = filepath.Dir(binary)
	stop, err := startCluster(binary, dir)
	if err != nil {
		return 1, err
	}
	code = m.Run()
	if err := stop(); err != nil {
		return 1, err
	}
	return code, nil
}

// findBundle returns the program under test, with etcd beside it. It uses the built bundle, or builds the programs.
func findBundle(dir string) (string, error) {
	if built, err := cluster.DeclaredBundle(); built != "" || err != nil {
		return filepath.Join(built, "clusterctl"), err
	}
	for _, name := range []string{"etcd", "clusterctl"} {
		cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w", "-o",
			filepath.Join(dir, name), "./cmd/"+name)
		cmd.Dir = "../../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return filepath.Join(dir, "clusterctl"), nil
}

// startCluster runs the cluster until stop is called. stop returns an error if the cluster did not end cleanly.
func startCluster(binary, dir string) (stop func() error, err error) {
	clusterProcess = exec.Command(binary, "dev", "--nodes", "3", "--data", filepath.Join(dir, "data"),
		"--node-monitor-grace-period", grace.String(), "--metric-resolution", "1s", "-v", "2")
	clusterProcess.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	clusterProcess.Stderr = log
	out, err := clusterProcess.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := clusterProcess.Start(); err != nil {
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	stop = func() error {
		if err := clusterProcess.Process.Signal(os.Interrupt); err != nil {
			return fmt.Errorf("end the cluster: %w", err)
		}
		forced := time.AfterFunc(20*time.Second, func() { _ = clusterProcess.Process.Kill() })
		defer forced.Stop()
		err := clusterProcess.Wait()
		if refused := refusedRequests(log.Name()); len(refused) > 0 {
			return fmt.Errorf("controllers were refused what they do, which their roles lack:\n%s",
				strings.Join(refused, "\n"))
		}
		if reports := raceReport(log.Name()); reports != "" {
			return fmt.Errorf("the race detector reported:\n%s", reports)
		}
		if keep := os.Getenv("CLUSTERCTL_TEST_LOG"); keep != "" {
			_ = os.Rename(log.Name(), keep)
		}
		if err != nil {
			return fmt.Errorf("the cluster did not end well: %w", err)
		}
		return nil
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, path, ok := strings.Cut(lines.Text(), "KUBECONFIG="); ok {
			return stop, connectClients(path)
		}
	}
	_ = clusterProcess.Wait()
	text, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("the cluster did not start:\n%s", text)
}

// refusedRequests returns the lines of the cluster's log in which an account of kube-system, such as a controller's,
// lacks a right.
func refusedRequests(log string) (lines []string) {
	text, err := os.ReadFile(log)
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "forbidden: User") && strings.Contains(line, "system:serviceaccount:kube-system:") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// raceReport returns the cluster's log from the first report of the race detector. It is empty if there is no report.
func raceReport(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	if at := strings.Index(string(text), cluster.RaceReport); at >= 0 {
		return string(text[at:min(len(text), at+20_000)])
	}
	return ""
}

func connectClients(path string) (err error) {
	kubeconfigPath = path
	if restConfig, err = clientcmd.BuildConfigFromFlags("", kubeconfigPath); err != nil {
		return err
	}
	restConfig.QPS = -1
	if sharedClient, err = kubernetes.NewForConfig(restConfig); err != nil {
		return err
	}
	dynamicClient, err = dynamic.NewForConfig(restConfig)
	return err
}

// waitTimeout is the maximum wait of a test. It is much longer than normal, because the machine may be busy.
const waitTimeout = 30 * time.Second

// waitFor calls look until it returns true. After waitTimeout it fails the test with what look returned last.
func waitFor(t *testing.T, what string, look func(ctx context.Context) (seen bool, saw any)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for {
		seen, saw := look(ctx)
		if seen {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s; last seen: %v", what, waitTimeout, saw)
		case <-tick.C:
		}
	}
}

// holdFor fails the test if look returns false within a time that covers several rounds of the controllers.
func holdFor(t *testing.T, what string, look func(ctx context.Context) (fine bool, saw any)) {
	t.Helper()
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(500 * time.Millisecond)
	defer end.Stop()
	for {
		if fine, saw := look(t.Context()); !fine {
			t.Fatalf("%s: %v", what, saw)
		}
		select {
		case <-end.C:
			return
		case <-tick.C:
		}
	}
}

// isGone reports whether a Get found nothing.
func isGone(_ any, err error) (bool, any) {
	return apierrors.IsNotFound(err), err
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// createNamespace creates a namespace for the test that is ready for pods. It is deleted with the test.
func createNamespace(t *testing.T) string {
	t.Helper()
	made := must[*corev1.Namespace](t)(sharedClient.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{}))
	t.Cleanup(func() {
		now := int64(0)
		_ = sharedClient.CoreV1().
			Namespaces().
			Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	waitFor(t, "the default service account", func(ctx context.Context) (bool, any) {
		_, err := sharedClient.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	return made.Name
}

// podSpec returns the spec of a pod that runs a command, or runs until it is deleted. Its grace period is zero.
func podSpec(command ...string) corev1.PodSpec {
	now := int64(0)
	if len(command) == 0 {
		command = []string{"sleep", "infinity"}
	}
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &now,
		Containers:                    []corev1.Container{{Name: "c", Image: "example.com/a:1", Command: command}},
	}
}

func podsOf(t *testing.T, namespace, selector string) []corev1.Pod {
	t.Helper()
	return must[*corev1.PodList](t)(sharedClient.CoreV1().Pods(namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: selector})).Items
}
