// Package prometheus makes Debian's Prometheus scrape a control plane, a simulated node and a name server, as
// kube-prometheus does. It evaluates rules with the names and labels that users' rules select.
package prometheus

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/dns"
	"clusterctl/daemons/kubelet"
	"clusterctl/daemons/kubelet/hollow"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/run"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/plane"
)

// nodeName is the name of the node.
const nodeName = "n1"

// world is what is scraped.
type world struct {
	t            *testing.T // the running test
	root         *testing.T // its parent test
	dir          string
	plane        *plane.Plane
	config       *rest.Config
	client       *kubernetes.Clientset
	ca           certs.Pair
	extraTargets string // file with the targets of another version

	runtime     *slowRuntime
	machine     *fullMachine
	options     kubelet.Options
	port        int // of the kubelet
	stopKubelet func()
	dns         string
	metrics     string // address of the name server's metrics
	churnRounds int    // number of calls of makeActivity
}

// slowRuntime is a runtime that can be slow.
type slowRuntime struct {
	*hollow.Runtime
	isSlow atomic.Bool
}

// pause is the duration of each call when the runtime is slow. It is longer than the rules allow.
const pause = 12 * time.Second

func (r *slowRuntime) pause(ctx context.Context) {
	if !r.isSlow.Load() {
		return
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// RunPodSandbox implements cri.Service.
func (r *slowRuntime) RunPodSandbox(ctx context.Context, config *criapi.PodSandboxConfig,
	handler string) (string, error) {
	r.pause(ctx)
	return r.Runtime.RunPodSandbox(ctx, config, handler)
}

// StartContainer implements cri.Service.
func (r *slowRuntime) StartContainer(ctx context.Context, id string) error {
	r.pause(ctx)
	return r.Runtime.StartContainer(ctx, id)
}

// ListContainers implements cri.Service.
func (r *slowRuntime) ListContainers(ctx context.Context, filter *criapi.ContainerFilter) ([]*criapi.Container, error) {
	r.pause(ctx)
	return r.Runtime.ListContainers(ctx, filter)
}

// fullMachine is a machine whose disk can be full.
type fullMachine struct {
	machine.Machine
	isFull atomic.Bool
}

// Disk implements machine.Machine.
func (m *fullMachine) Disk() (machine.Disk, error) {
	d, err := m.Machine.Disk()
	if m.isFull.Load() {
		d.Available = d.Capacity / 100
	}
	return d, err
}

// programDir returns the folder of clusterctl and etcd: the built bundle, or programs that it builds.
func programDir(t *testing.T) string {
	t.Helper()
	built, err := cluster.DeclaredBundle()
	if err != nil {
		t.Fatal(err)
	}
	if built != "" {
		return built
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w",
		"-o", dir+"/", "./cmd/clusterctl", "./cmd/etcd")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return dir
}

// startWorld starts everything except Prometheus.
func startWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, root: t, dir: t.TempDir()}
	var err error
	if w.plane, err = plane.New(t.Context(), plane.Options{Bin: programDir(t), Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.plane.Close(); err != nil {
			t.Error(err)
		}
	})
	w.must(w.plane.API[0].Start(context.WithoutCancel(t.Context())))
	w.must(w.plane.Ready(t.Context(), 0))
	w.startRest()
	w.config, err = clientcmd.BuildConfigFromFlags("", w.plane.Kubeconfig())
	w.must(err)
	w.config.QPS = -1
	w.client, err = kubernetes.NewForConfig(w.config)
	w.must(err)
	w.ca = certs.Pair{Cert: w.read("ca.crt"), Key: w.read("ca.key")}
	w.extraTargets = filepath.Join(w.dir, "old.json")
	w.targets()

	w.options = kubelet.Hollow(nodeName, 4, 8<<30, netip.MustParsePrefix("10.200.0.0/24"), filepath.Join(w.dir, "logs"))
	w.runtime, w.machine = &slowRuntime{Runtime: w.options.Runtime.(*hollow.Runtime)},
		&fullMachine{Machine: w.options.Machine}
	w.options.Runtime, w.options.Machine, w.options.NoServer = w.runtime, w.machine, false
	w.port = w.freePort()
	w.write("node.conf", w.kubeconfig(certs.Node(nodeName), time.Now()))
	w.startKubelet(func(*config.Kubelet, *config.KubeletFile) {})
	t.Cleanup(func() { w.stopKubelet() })
	w.startDNS()
	w.startWebhook()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// waitFor calls ok until it returns no error. ok may also repeat an action that leads to the condition.
func (w *world) waitFor(what string, limit time.Duration, ok func() error) {
	w.t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			w.t.Fatalf("timed out waiting for %s: %v", what, err)
		case <-tick.C:
		}
	}
}

func (w *world) freePort() int {
	w.t.Helper()
	port, err := run.FreePort()
	w.must(err)
	return port
}

// path returns the path of a file of the control plane.
func (w *world) path(name string) string { return filepath.Join(w.plane.Dir, name) }

func (w *world) read(name string) []byte {
	w.t.Helper()
	text, err := os.ReadFile(w.path(name))
	w.must(err)
	return text
}

// write writes a file of the world, and returns its path.
func (w *world) write(name string, text []byte) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	w.must(os.MkdirAll(filepath.Dir(path), 0o700))
	w.must(os.WriteFile(path+".new", text, 0o600))
	w.must(os.Rename(path+".new", path))
	return path
}

// kubeconfig returns a kubeconfig with a certificate that is valid from a time on.
func (w *world) kubeconfig(who certs.Request, from time.Time) []byte {
	w.t.Helper()
	pair, err := certs.Issue(w.ca, who, from)
	w.must(err)
	text, err := certs.Kubeconfig("test", "https://"+w.plane.Addresses()[0], who.CommonName, w.ca.Cert, pair)
	w.must(err)
	return text
}

// shortValidityStart returns the start of validity of a certificate that expires in one hour.
func shortValidityStart() time.Time { return time.Now().Add(time.Hour - certs.LeafLifetime) }

// startRest starts scheduler and controllers.
func (w *world) startRest() {
	w.t.Helper()
	w.must(w.plane.Scheduler.Start(context.WithoutCancel(w.t.Context())))
	w.must(w.plane.Controllers.Start(context.WithoutCancel(w.t.Context())))
}

// startKubelet starts the node's kubelet, which w.end ends.
func (w *world) startKubelet(change func(*config.Kubelet, *config.KubeletFile)) {
	w.t.Helper()
	cfg, file := config.DefaultKubelet(), config.DefaultKubeletFile()
	cfg.Kubeconfig, cfg.HostnameOverride, cfg.RootDir, cfg.NodeIP = filepath.Join(w.dir,
		"node.conf"), nodeName, filepath.Join(w.dir, "kubelet"), []string{
		"127.0.0.1",
	}
	file.Address, file.Port, file.HealthzPort, file.StaticPodPath, file.ResolverConfig = "127.0.0.1", w.port, 0, "", ""
	file.Authentication.X509.ClientCAFile = w.path("ca.crt")
	change(&cfg, &file)
	w.stopKubelet = w.background("kubelet",
		func(ctx context.Context, env run.Env) error { return kubelet.RunWith(ctx, cfg, file, env, w.options) })
}

// background runs a daemon in this process until the returned function is called.
func (w *world) background(name string, do func(context.Context, run.Env) error) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	env := run.NewEnv(
		slog.New(slog.NewTextHandler(w.root.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).
			With("daemon", name),
	)
	env.About.Name = name
	go func() { done <- do(ctx, env) }()
	return func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			w.root.Errorf("%s ended with %v", name, err)
		}
		done <- nil
	}
}

// startDNS starts a name server without upstream servers.
func (w *world) startDNS() {
	w.t.Helper()
	cfg := config.DefaultDNS()
	w.dns, w.metrics = net.JoinHostPort("127.0.0.1", strconv.Itoa(w.freePort())), net.JoinHostPort("127.0.0.1",
		strconv.Itoa(w.freePort()))
	cfg.Kubeconfig, cfg.BindAddress, cfg.HealthAddress, cfg.NodeName, cfg.ServiceName = w.plane.Kubeconfig(), w.dns,
		w.metrics, nodeName, ""
	cfg.AllowedClients, cfg.Upstream = []string{
		"127.0.0.0/8",
	}, []string{
		net.JoinHostPort("127.0.0.1", strconv.Itoa(w.freePort())),
	}
	w.t.Cleanup(w.background("kube-dns",
		func(ctx context.Context, env run.Env) error { return dns.Run(ctx, cfg, env) }))
}

// startWebhook starts a webhook that allows all writes of ConfigMaps.
func (w *world) startWebhook() {
	w.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(out, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(review)
	}))
	w.t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	_, err := w.client.AdmissionregistrationV1().
		ValidatingWebhookConfigurations().
		Create(w.t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "looks"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:          "looks.example.com",
				ClientConfig:  admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: certificate},
				FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
				SideEffects: ptr.To(
					admissionregistrationv1.SideEffectClassNone,
				), AdmissionReviewVersions: []string{"v1"},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups:   []string{""},
						APIVersions: []string{"v1"},
						Resources:   []string{"configmaps"},
					},
				}},
			}},
		}, metav1.CreateOptions{})
	w.must(err)
}

// targets writes the additional targets to scrape.
func (w *world) targets(addresses ...string) {
	w.t.Helper()
	text, err := json.Marshal([]map[string]any{{"targets": append([]string{}, addresses...)}})
	w.must(err)
	w.write("old.json", text)
}
