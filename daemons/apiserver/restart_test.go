package apiserver_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// countingStore counts the calls for which a store has to read.
type countingStore struct {
	store.Store
	ranges, reads atomic.Int64
}

func (c *countingStore) All(ctx context.Context, prefix string, take func([]store.KeyValue) error) (int64, error) {
	c.ranges.Add(1)
	return c.Store.All(ctx, prefix, take)
}

func (c *countingStore) Get(ctx context.Context, key string) (*store.KeyValue, error) {
	c.reads.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *countingStore) Revision(ctx context.Context) (int64, error) {
	c.reads.Add(1)
	return c.Store.Revision(ctx)
}

// A restarted server loads the store once. Neither the server nor the returning informers cause further reads of the
// store.
// Proves S4.
func TestRestartedServerLoadsTheStoreOnce(t *testing.T) {
	s := stores["memory"](t)
	advertise := func(o *apiserver.Options) {
		o.Addresses.AdvertiseAddress, o.Addresses.AdvertisePort = "10.0.0.1", 6443
	}
	t.Run("the first time", func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(startConfig(t, s, advertise))
		waitUntil(t, func() error { // the last object that a server creates for itself
			return client.RESTClient().
				Get().
				AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v2.autoscaling").
				Do(timeoutContext(t)).
				Error()
		})
	})
	counted := &countingStore{Store: s}
	client := kubernetes.NewForConfigOrDie(startConfig(t, counted, advertise))
	ctx, stop := context.WithCancel(timeoutContext(t))
	defer stop()
	var informers sync.WaitGroup
	for range 50 {
		informers.Go(func() {
			list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				t.Error(err)
				return
			}
			w, err := client.CoreV1().
				Namespaces().
				Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
			if err != nil {
				t.Error(err)
				return
			}
			w.Stop()
		})
	}
	informers.Wait()
	// Two of the server's own tasks may write the same object at once, and the second then reads it again.
	const conflicts = 3
	if ranges, reads := counted.ranges.Load(), counted.reads.Load(); ranges != 1 || reads > conflicts {
		t.Errorf("%d ranges and %d other reads, want 1 and at most %d", ranges, reads, conflicts)
	}
}

// heldStore is a store that does not return its contents before it is released.
type heldStore struct {
	store.Store
	release chan struct{}
}

func (h *heldStore) All(ctx context.Context, prefix string, take func([]store.KeyValue) error) (int64, error) {
	select {
	case <-h.release:
		return h.Store.All(ctx, prefix, take)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// A server that has just started does not deny rights that it has not loaded yet. Requests wait. Those whose time ends
// get 503 with Retry-After.
func TestNoRequestIsRefusedBeforeTheCacheIsFilled(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	first := serveCluster(t, inner)
	ctx := timeoutContext(t)
	admin := kubernetes.NewForConfigOrDie(first.configFor(certs.SuperAdmin()))
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "reader"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first.stop()
	held := &heldStore{Store: inner, release: make(chan struct{})}
	second := startCluster(t, held)
	config := second.configFor(certs.Request{CommonName: "reader"})
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/api/v1/namespaces/default/configmaps?timeout=50ms": http.StatusServiceUnavailable,
		"/version": http.StatusOK,
	} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want || (want != http.StatusOK) != (response.Header.Get("Retry-After") == "1") {
			t.Errorf("%s: %s, Retry-After %q", path, response.Status, response.Header.Get("Retry-After"))
		}
	}
	time.AfterFunc(50*time.Millisecond, func() { close(held.release) })
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default").List(ctx,
		metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// Requests that have not been authenticated cannot fill the memory of a server whose store does not answer.
func TestFewRequestsWaitForTheCache(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	server, err := apiserver.New(apiserver.Options{
		Storage: apiserver.OpenStorage(s, "", kinds.All(), slog.New(slog.DiscardHandler)),
		Env:     run.NewEnv(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		t.Fatal(err)
	}
	server.OccupyCacheWait()
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, httptest.NewRequestWithContext(timeoutContext(t), http.MethodGet, "/api/v1/pods", nil))
	if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") != "1" {
		t.Errorf("%d, Retry-After %q", answer.Code, answer.Header().Get("Retry-After"))
	}
}
