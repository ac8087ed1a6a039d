package faults

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/apiserver/admission"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
	ownclients "clusterctl/kube/kubernetes"
)

// world is an API server with simulated nodes, and a client without faults.
type world struct {
	client          *kubernetes.Clientset
	watches         ownclients.Interface // of the daemons' own clients, for their informers
	kubeconfig      string
	clock           clock.WithTicker
	faults          *faults
	log             *slog.Logger
	betweenAttempts func() // called between attempts in until; may be nil
}

// allowAll allows every request, because these tests do not cover authorization.
type allowAll struct{}

func (allowAll) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.Allow, "", nil
}

func newWorld(t *testing.T, f *faults, time clock.WithTicker) *world {
	t.Helper()
	w := &world{clock: time, faults: f, log: slog.New(slog.DiscardHandler)}
	if os.Getenv("VERBOSE") != "" {
		w.log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s := memory.New()
	t.Cleanup(s.Close)
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	storage := apiserver.OpenStorage(s, "", kinds.All(), env.Log)
	mutators, validators, err := admission.All(config.DefaultAPIServer(), storage.Objects(), allowAll{}, env.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(apiserver.Options{
		Storage: storage, Env: env, Now: w.clock.Now,
		Addresses: apiserver.Addresses{ServiceClusterIPRange: []string{"10.96.0.0/16"}},
		Limits:    apiserver.Limits{MaxInFlight: 5000},
		Access:    apiserver.Access{Authorizers: []api.Authorizer{allowAll{}}},
		Admission: apiserver.Admission{Mutators: mutators, Validators: validators,
			Quota: admission.NewQuota(storage.Objects()), External: &write.External{Authorizer: allowAll{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	web := httptest.NewUnstartedServer(server)
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
	})
	w.waitFor(t, "the API server",
		func(context.Context) (bool, any) { err := env.Health.Err(true); return err == nil, err })
	cluster := clientcmdapi.NewConfig()
	cluster.Clusters["c"] = &clientcmdapi.Cluster{Server: web.URL, InsecureSkipTLSVerify: true}
	cluster.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	cluster.CurrentContext = "c"
	w.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cluster, w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	api := &rest.Config{
		Host: web.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"},
	}
	w.client, w.watches = kubernetes.NewForConfigOrDie(api), ownclients.NewForConfigOrDie(api)
	for _, name := range nodeNames {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		}
		made, err := w.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Spec.Taints = nil
		if made, err = w.client.CoreV1().Nodes().Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		made.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.clock.Now())},
		}
		if _, err := w.client.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

var nodeNames = []string{"n1", "n2", "n3"}

// runControllers runs the controllers until the test ends. With a time in between, the leader is killed at that
// interval: from that moment it receives no answers and sends no requests, and another leader starts. without disables
// some controllers.
func (w *world) runControllers(t *testing.T, between time.Duration, without ...string) {
	t.Helper()
	cfg := config.DefaultControllerManager()
	cfg.Kubeconfig, cfg.SecurePort, cfg.LeaderElect = w.kubeconfig, 0, false
	cfg.UseServiceAccountCredentials = false // this API server does not authenticate users
	cfg.Controllers = append([]string{"*", "-certificate", "-serviceaccount-token"},
		without...) // they have no signing keys here
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			leading, kill := context.WithCancel(ctx)
			l := &leaderTransport{faults: w.faults, killed: make(chan struct{})}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				err := controllers.RunWith(
					leading,
					cfg,
					run.NewEnv(w.log),
					controllers.Options{Clock: w.clock, Wrap: func(to http.RoundTripper) http.RoundTripper {
						l.next = to
						return l
					}},
				)
				if err != nil && leading.Err() == nil {
					t.Errorf("the controllers ended: %v", err)
				}
			}()
			sleepContext(ctx, between)
			l.kill(kill)
			<-ended
			w.awaitVisible(ctx)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// awaitVisible waits until the API server returns everything written so far to reads of any version, because a new
// leader makes such reads. In a real cluster the lease must expire first, which takes much longer.
func (w *world) awaitVisible(ctx context.Context) {
	for ctx.Err() == nil {
		// A list without a version is as new as the store.
		if _, err := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			return
		}
		sleepContext(ctx, 20*time.Millisecond)
	}
}

// sleepContext waits for a time, or until ctx ends if the time is 0.
func sleepContext(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		over = time.After(d)
	}
	select {
	case <-ctx.Done():
	case <-over:
	}
}

// waitTimeout is the maximum wait.
const waitTimeout = 2 * time.Minute

// waitFor calls look until it returns true.
func (w *world) waitFor(t *testing.T, what string, look func(ctx context.Context) (seen bool, saw any)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		seen, saw := look(ctx)
		if seen {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s: not within %s; last seen: %v", what, waitTimeout, saw)
			return
		case <-tick.C:
		}
		if w.betweenAttempts != nil {
			w.betweenAttempts()
		}
	}
}
