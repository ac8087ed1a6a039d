package roll

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/suites/chaos/check"
)

const replacementLimit = 12 * time.Minute

// All authorities and the key of service accounts are replaced under load from outside, while apply is killed in every
// move and run again. Clients keep the kubeconfig and the token from before. None of their requests fails until the end
// of the replacement is requested, except requests to an etcd member that restarts, and their answers are consistent.
// Proves S37.
func TestAuthoritiesAreReplacedUnderLoadDespiteKilledApplies(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), replacementLimit)
	defer cancel()
	c := startCluster(ctx, t, "certificates", clusterConfig)
	before := newCredentials(ctx, t, c)
	load := startLoad(ctx, t, before)
	defer load.finish()

	rotated, err := c.Clusterctl(ctx, "certs", "rotate", "all").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, rotated)
	}
	for _, at := range []string{`machine\.c.* done`, `service-account: all machines trust the next one`, `machine\.c.* done`, `front-proxy-ca: the former one is not trusted`, `machine\.c.* done`} {
		killApplyAt(ctx, t, c, at)
	}
	if out, err := c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput(); err != nil {
		t.Fatalf("go on after everything was cut off: %v\n%s", err, out)
	}
	plan, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput()
	if err != nil || !strings.Contains(string(plan), "certs rotate -finish") {
		t.Errorf("not as declared afterwards, or it is not said what is still trusted: %v\n%s", err, plan)
	}
	checkPublished(ctx, t, c, 2)
	load.finish()

	// Everything gets credentials of the next authorities. Then those of the former ones become invalid.
	kubeconfig, err := cluster.Output(c.Clusterctl(ctx, "kubeconfig"))
	if err == nil {
		err = os.WriteFile(c.Kubeconfig(), []byte(kubeconfig), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	after := newCredentials(ctx, t, c)
	load = startLoad(ctx, t, after)
	defer load.finish()
	if out, err := c.Clusterctl(ctx, "certs", "rotate", "-finish", "cluster-ca",
		"service-account").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	killApplyAt(ctx, t, c, `machine\.c.* done`)
	if out, err := c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if plan, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput(); err != nil ||
		strings.Contains(string(plan), "rotate") {
		t.Errorf("not as declared at the end: %v\n%s", err, plan)
	}
	checkPublished(ctx, t, c, 1)
	load.finish()
	for i, former := range before {
		former.CAData, former.Insecure = nil, true
		client, err := kubernetes.NewForConfig(former)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
			_, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			if !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("the request is not refused: %w", err)
			}
			return nil
		}); err != nil {
			t.Errorf("former credentials %d are taken: %v", i, err)
		}
	}
}

// killApplyAt runs apply and kills it when it prints a text.
func killApplyAt(ctx context.Context, t *testing.T, c *cluster.Cluster, at string) {
	t.Helper()
	apply := c.Clusterctl(ctx, "apply", "-auto-approve")
	out, err := apply.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	apply.Stderr = os.Stderr
	if err := apply.Start(); err != nil {
		t.Fatal(err)
	}
	pattern, found := regexp.MustCompile(at), false
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if !found && pattern.MatchString(lines.Text()) {
			found = true
			if err := apply.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	err = apply.Wait()
	if !found {
		t.Fatalf("apply never says %q: %v\n%s", at, err, all.String())
	}
	t.Logf("killed at %q", at)
}

// checkPublished checks that the pods' copy of the cluster's authorities has the given number of certificates.
func checkPublished(ctx context.Context, t *testing.T, c *cluster.Cluster, many int) {
	t.Helper()
	for _, get := range []string{
		"get configmap kube-root-ca.crt --namespace=default --output=jsonpath={.data.ca\\.crt}",
		"get configmap extension-apiserver-authentication --namespace=kube-system " +
			"--output=jsonpath={.data.client-ca-file}",
	} {
		if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
			text, err := cluster.Output(c.KubectlCommand(ctx, strings.Fields(get)...))
			if err == nil && strings.Count(text, "BEGIN CERTIFICATE") != many {
				err = fmt.Errorf("want %d certificates: %s", many, text)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", get, err)
		}
	}
}

// newCredentials returns an administrator's credentials, and a service account's token, each with the present
// authorities.
func newCredentials(ctx context.Context, t *testing.T, c *cluster.Cluster) []*rest.Config {
	t.Helper()
	if out, err := c.KubectlCommand(ctx, "create", "rolebinding", "load", "--namespace=default", "--clusterrole=edit",
		"--serviceaccount=default:default").CombinedOutput(); err != nil &&
		!strings.Contains(string(out), "already exists") {
		t.Fatalf("%v\n%s", err, out)
	}
	token, err := cluster.Output(c.KubectlCommand(ctx, "create", "token", "default", "--namespace=default",
		"--duration=2h"))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	ready := findReadyServer(ctx, c)
	admin.Host, admin.ServerName, admin.QPS, admin.Timeout = "https://kubernetes:6443", "kubernetes", -1, 20*time.Second
	admin.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		for {
			if at := ready(); at != "" {
				if conn, err := c.Lab.Dial(ctx, network, at); err == nil {
					return conn, nil
				}
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	account := rest.AnonymousClientConfig(admin)
	account.BearerToken = strings.TrimSpace(token)
	return []*rest.Config{admin, account}
}

// findReadyServer returns a function that returns the address of an API server that is ready, as a load balancer does.
func findReadyServer(ctx context.Context, c *cluster.Cluster) (ready func() string) {
	var mu sync.Mutex
	well := map[string]bool{}
	ask := &http.Client{
		Timeout: time.Second,
		Transport: &http.Transport{
			DialContext:       c.Lab.Dial,
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		},
	}
	for _, m := range c.Lab.Machines {
		at := net.JoinHostPort(m.Address, "6443")
		go func() {
			for ctx.Err() == nil {
				answer, err := ask.Get("https://" + at + "/readyz")
				mu.Lock()
				well[at] = err == nil && answer.StatusCode == http.StatusOK
				mu.Unlock()
				if err == nil {
					_ = answer.Body.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}()
	}
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		for at, certificate := range well { // in no order
			if certificate {
				return at
			}
		}
		return ""
	}
}

// requestLoad writes and reads a few objects from outside and records the answers.
type requestLoad struct {
	t     *testing.T
	start time.Time
	stop  context.CancelFunc
	wait  sync.WaitGroup
	once  sync.Once

	mu         sync.Mutex
	history    []check.Operation
	unanswered int
}

func startLoad(ctx context.Context, t *testing.T, all []*rest.Config) *requestLoad {
	t.Helper()
	l := &requestLoad{t: t, start: time.Now()}
	ctx, l.stop = context.WithCancel(ctx)
	for i := range 4 {
		client, err := kubernetes.NewForConfig(rest.CopyConfig(all[i%len(all)]))
		if err != nil {
			t.Fatal(err)
		}
		l.wait.Go(func() { l.run(ctx, i, client) })
	}
	return l
}

// finish stops the load, and checks the answers.
func (l *requestLoad) finish() {
	l.once.Do(func() {
		l.stop()
		l.wait.Wait()
		l.t.Logf("%d requests in %s; for %d the store gave no answer in time", len(l.history),
			time.Since(l.start).Round(time.Second), l.unanswered)
		if len(l.history) < 200 {
			l.t.Errorf("the cluster was hardly used: %d requests", len(l.history))
		}
		for _, finding := range check.Linearizable(l.history, time.Minute) {
			l.t.Error(finding)
		}
	})
}

func (l *requestLoad) run(ctx context.Context, number int, client *kubernetes.Clientset) {
	maps := client.CoreV1().ConfigMaps("default")
	var last *corev1.ConfigMap
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(30 * time.Millisecond):
		}
		// Keys change, so that histories stay short enough to be checked.
		o := check.Operation{
			Client: number,
			Key:    fmt.Sprintf("load-%d-%d", l.start.Unix(), time.Since(l.start)/(5*time.Second)),
			Kind:   check.Get,
			Value:  fmt.Sprintf("%d-%d", number, n),
		}
		if last != nil && last.Name != o.Key {
			last = nil
		}
		if n%3 != 0 {
			if o.Kind = check.Create; last != nil {
				o.Kind, o.Base = check.Update, last.Data["value"]
			}
		}
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: o.Key},
			Data:       map[string]string{"value": o.Value},
		}
		var got *corev1.ConfigMap
		var err error
		o.Call = time.Since(l.start)
		switch o.Kind {
		case check.Create:
			got, err = maps.Create(ctx, object, metav1.CreateOptions{})
		case check.Update:
			object.ResourceVersion = last.ResourceVersion
			got, err = maps.Update(ctx, object, metav1.UpdateOptions{})
		default:
			got, err = maps.Get(ctx, o.Key, metav1.GetOptions{})
			o.Value = ""
		}
		o.Return = time.Since(l.start)
		switch {
		case ctx.Err() != nil:
			if o.Outcome = check.OutcomeUnknown; o.Kind == check.Get {
				return
			}
		case err == nil:
			o.Outcome, last = check.OutcomeOK, got
			if o.Kind == check.Get {
				o.Value = got.Data["value"]
			}
			o.Revision, _ = strconv.ParseInt(got.ResourceVersion, 10, 64)
		case apierrors.IsAlreadyExists(err):
			o.Outcome = check.OutcomeExists
		case apierrors.IsNotFound(err):
			o.Outcome = check.OutcomeNotFound
		case apierrors.IsConflict(err):
			o.Outcome, last = check.OutcomeConflict, nil
		default:
			o.Outcome = check.OutcomeUnknown
			// A request that an etcd member was processing when it restarted may have been completed or not, and the
			// answer says so.
			if apierrors.IsTimeout(err) {
				l.mu.Lock()
				l.unanswered++
				l.mu.Unlock()
			} else {
				l.t.Errorf("request %d of client %d, %s after the beginning: %s: "+
					"%v", n, number, time.Since(l.start).Round(time.Second), o.Kind, err)
			}
			if o.Kind == check.Get {
				continue
			}
		}
		l.mu.Lock()
		l.history = append(l.history, o)
		l.mu.Unlock()
	}
}
