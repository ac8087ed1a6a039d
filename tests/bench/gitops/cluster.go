package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/client"
	"clusterctl/daemons/config"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/run"
	"clusterctl/tests/lab/plane"
)

var (
	gitSources = schema.GroupVersionResource{Group: gitsource.Group, Version: gitsource.Version,
		Resource: gitsource.Resource}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	bindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterrolebindings"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// testCluster is a control plane with a Git server and a GitOps controller that the caller starts.
type testCluster struct {
	*plane.Plane
	repository *repository
	controller *plane.Process
	health     string // address of the controller's metrics
	hooks      string // address of its receiver of webhooks
	dynamic    dynamic.Interface
	typed      kubernetes.Interface
}

// withCluster starts a cluster, calls work and ends the cluster.
func (b *bench) withCluster(ctx context.Context, work func(context.Context, *testCluster) error) (err error) {
	dir, err := os.MkdirTemp("", "bench-gitops-")
	if err != nil {
		return err
	}
	p, err := plane.New(ctx, plane.Options{Bin: b.bin, Dir: dir})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.API[0].Start(ctx); err != nil {
		return err
	}
	if err := p.Ready(ctx, 0); err != nil {
		return err
	}
	c := &testCluster{Plane: p}
	if c.repository, err = startRepository(ctx, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.repository.close()) }()
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.prepareController(b.bin, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.controller.Stop()) }()
	if err := c.define(ctx); err != nil {
		return err
	}
	if err := work(ctx, c); err != nil {
		return fmt.Errorf("%w\n%s", err, c.controller.LogTail())
	}
	return nil
}

func (c *testCluster) connect() error {
	cfg, err := client.Config(client.Options{Kubeconfig: c.Kubeconfig(), UserAgent: "bench-gitops"})
	if err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return err
	}
	c.typed, err = kubernetes.NewForConfig(cfg)
	return err
}

// prepareController prepares the controller's process, with the defaults of everything but files and ports.
func (c *testCluster) prepareController(bin, dir string) error {
	cfg, defaults := config.DefaultGitOps(), config.DefaultGitOps()
	cfg.Kubeconfig, cfg.StateDir, cfg.LeaderElect = c.Kubeconfig(), filepath.Join(dir, "gitops"), false
	health, err := run.FreePort()
	if err != nil {
		return err
	}
	if cfg.ReceiverHTTPPort, err = run.FreePort(); err != nil {
		return err
	}
	c.health, c.hooks = fmt.Sprintf("127.0.0.1:%d", health), fmt.Sprintf("127.0.0.1:%d", cfg.ReceiverHTTPPort)
	cfg.HealthAddress = c.health
	c.controller = plane.NewProcess(filepath.Join(dir, "gitops.log"),
		append([]string{filepath.Join(bin, "gitops-controller")}, config.Args(&cfg, &defaults)...)...)
	return nil
}

// define creates the kind of sources, and gives the default account of sources its rights.
func (c *testCluster) define(ctx context.Context) error {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(gitsource.Definition, &definition.Object); err != nil {
		return err
	}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": "gitops"},
		"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
			"name": "cluster-admin"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": gitsource.Account,
			"namespace": gitsource.Namespace}}}}
	if _, err := c.dynamic.Resource(definitions).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := c.dynamic.Resource(bindings).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	return poll(ctx, 20*time.Millisecond, "the API serves GitSources", func(ctx context.Context) (bool, error) {
		_, err := c.dynamic.Resource(gitSources).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	})
}

// createSource creates a source in kube-system.
func (c *testCluster) createSource(ctx context.Context, name string, spec map[string]any) error {
	spec["url"] = c.repository.URL
	_, err := c.dynamic.Resource(gitSources).Namespace(gitsource.Namespace).Create(ctx,
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": gitsource.APIVersion, "kind": gitsource.Kind,
			"metadata": map[string]any{"name": name}, "spec": spec}}, metav1.CreateOptions{})
	return err
}

// awaitReady waits until n sources are ready.
func (c *testCluster) awaitReady(ctx context.Context, n int) error {
	ready := map[string]bool{}
	return poll(ctx, scrapeInterval, fmt.Sprintf("%d sources are ready", n), func(ctx context.Context) (bool, error) {
		if c.reconciled(ctx, `outcome="ready"`) < float64(n) {
			return false, nil
		}
		list, err := c.dynamic.Resource(gitSources).Namespace(gitsource.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, s := range list.Items {
			conditions, _, err := unstructured.NestedSlice(s.Object, "status", "conditions")
			if err != nil {
				return false, err
			}
			for _, condition := range conditions {
				if m, ok := condition.(map[string]any); ok && m["type"] == "Ready" && m["status"] == "True" {
					ready[s.GetName()] = true
				}
			}
		}
		return len(ready) == n, nil
	})
}

// reconciled returns the number of rounds that the controller has counted, with a text in their labels. It is 0 before
// the controller serves its metrics.
func (c *testCluster) reconciled(ctx context.Context, label string) float64 {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.health+"/metrics", nil)
	if err != nil {
		return 0
	}
	answer, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0
	}
	return sumOf(string(text), func(line string) bool {
		return strings.HasPrefix(line, "gitops_reconciliations_total{") && strings.Contains(line, label)
	})
}

// sumOf returns the sum of the samples of metrics whose lines match.
func sumOf(metrics string, matches func(line string) bool) (total float64) {
	for line := range strings.Lines(metrics) {
		if !matches(line) {
			continue
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64); err == nil {
			total += n
		}
	}
	return total
}

// writes is the number of requests that changed something.
type writes struct{ objects, sources, events float64 }

func (w writes) since(before writes) writes {
	return writes{w.objects - before.objects, w.sources - before.sources, w.events - before.events}
}

func (w writes) note() string {
	return fmt.Sprintf("%.0f writes of GitSources, %.0f of events", w.sources, w.events)
}

// countWrites returns the writes that the API server has counted.
func (c *testCluster) countWrites(ctx context.Context) (writes, error) {
	text, err := c.typed.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return writes{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	count := func(resource string) float64 {
		return sumOf(string(text), func(line string) bool {
			if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `dry_run=""`) ||
				!strings.Contains(line, resource) {
				return false
			}
			for _, verb := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"} {
				if strings.Contains(line, `verb="`+verb+`"`) {
					return true
				}
			}
			return false
		})
	}
	sources, events := count(`resource="gitsources"`), count(`resource="events"`)
	return writes{count("") - sources - events, sources, events}, nil
}

// costOf returns the CPU seconds of the controller while work runs, and the writes of all clients meanwhile.
func (c *testCluster) costOf(ctx context.Context, work func() error) (cpu float64, written writes, err error) {
	before, err := c.countWrites(ctx)
	if err != nil {
		return 0, writes{}, err
	}
	used, err := cpuSeconds(c.controller)
	if err != nil {
		return 0, writes{}, err
	}
	if err := work(); err != nil {
		return 0, writes{}, err
	}
	after, err := cpuSeconds(c.controller)
	if err != nil {
		return 0, writes{}, err
	}
	now, err := c.countWrites(ctx)
	return after - used, now.since(before), err
}

// scrapeInterval is the pause between reads of the controller's metrics, whose CPU time counts as the controller's.
const scrapeInterval = time.Second

// poll waits until a condition holds, for ten minutes at most.
func poll(ctx context.Context, every time.Duration, what string, holds func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, every, 10*time.Minute, true, holds)
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

// cpuClockSched selects the clock of the time that the scheduler gave to a process, CPUCLOCK_SCHED of Linux.
const cpuClockSched = 2

// cpuSeconds returns the CPU time of a process so far.
func cpuSeconds(p *plane.Process) (float64, error) {
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^p.PID()<<3|cpuClockSched), &used); err != nil {
		return 0, fmt.Errorf("CPU time of %s, process %d: %w", p.Command()[0], p.PID(), err)
	}
	return time.Duration(used.Nano()).Seconds(), nil
}

// peakMemory returns the most memory that a process has had, in MiB.
func peakMemory(p *plane.Process) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has ended", p.PID())
}
