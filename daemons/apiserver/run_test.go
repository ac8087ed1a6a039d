package apiserver_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// testCluster is a server as the daemon runs it, with certificates in files.
type testCluster struct {
	t    testing.TB
	ca   certs.Pair
	addr string
	stop func()

	readinessError func() error // why it is not ready; nil if it is
}

func writeFile(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serveCluster starts a server and waits until it is ready. more changes its configuration.
func serveCluster(t testing.TB, s store.Store, more ...func(*config.APIServer)) *testCluster {
	t.Helper()
	c := startCluster(t, s, more...)
	waitUntil(t, c.readinessError)
	return c
}

// startCluster is like serveCluster, but does not wait until the server is ready.
func startCluster(t testing.TB, s store.Store, more ...func(*config.APIServer)) *testCluster {
	t.Helper()
	cfg, ca := serverConfig(t, more...)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- apiserver.Serve(ctx, cfg, s, ln, env) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return &testCluster{
		t:              t,
		ca:             ca,
		addr:           ln.Addr().String(),
		stop:           stop,
		readinessError: func() error { return env.Health.Err(true) },
	}
}

// serverConfig returns the configuration of a server on a free port, and its CA.
func serverConfig(t testing.TB, more ...func(*config.APIServer)) (config.APIServer, certs.Pair) {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	ca, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := certs.Issue(ca, certs.APIServer("cluster.local", "10.96.0.1", nil), now)
	if err != nil {
		t.Fatal(err)
	}
	private, public, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultAPIServer()
	cfg.SecurePort, cfg.AdvertiseAddress = 0, "10.1.2.3"
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = writeFile(t, dir, "s.crt", leaf.Cert), writeFile(t, dir, "s.key", leaf.Key)
	cfg.ClientCAFile = writeFile(t, dir, "ca.crt", ca.Cert)
	cfg.KubeletCertificateAuthority = cfg.ClientCAFile
	cfg.ServiceAccountSigningKeyFile = writeFile(t, dir, "sa.key", private)
	cfg.ServiceAccountKeyFiles = []string{writeFile(t, dir, "sa.pub", public)}
	for _, change := range more {
		change(&cfg)
	}
	return cfg, ca
}

// waitUntil returns when condition returns nil.
func waitUntil(t testing.TB, condition func() error) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out: %v", err)
		}
	}
}

func (c *testCluster) configFor(r certs.Request) *rest.Config {
	c.t.Helper()
	r.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	pair, err := certs.Issue(c.ca, r, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	return &rest.Config{
		Host:            "https://" + c.addr,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.Cert, CertData: pair.Cert, KeyData: pair.Key},
	}
}

// The server reports ready only after Run has created the default objects, in whatever order the checks are registered.
func TestServerIsNotReadyBeforeRun(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	cfg, _ := serverConfig(t, func(cfg *config.APIServer) {
		cfg.EncryptionProviderConfig = writeFile(t, t.TempDir(), "encryption.yaml",
			[]byte(encryptionConfiguration("a")))
	})
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	assembled, checked := make(chan struct{}), make(chan bool)
	go func() {
		early := false
		for {
			early = early || env.Health.Err(true) == nil
			select {
			case <-assembled:
				checked <- early
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	_, err := apiserver.Assemble(cfg, s, env)
	close(assembled)
	if early := <-checked; err != nil || early {
		t.Fatalf("assembled with %v; ready before Run: %v", err, early)
	}
	if env.Health.Err(true) == nil {
		t.Fatal("ready although the server does not run")
	}
}

func TestDaemonCreatesTheDefaultObjects(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	ctx := context.Background()
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	waitUntil(t, func() error {
		_, err := client.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	})
	svc, err := client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || svc.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("service kubernetes: %+v, %v", svc, err)
	}
	roles, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil || len(roles.Items) < 20 {
		t.Errorf("%d default roles, %v", len(roles.Items), err)
	}
	endpoints, err := client.CoreV1().
		Endpoints("default").
		Get(ctx, "kubernetes", metav1.GetOptions{})
		//nolint:staticcheck // clients read them still
	if err != nil || len(endpoints.Subsets) != 1 || endpoints.Subsets[0].Addresses[0].IP != "10.1.2.3" {
		t.Errorf("endpoints: %+v, %v", endpoints, err)
	}
}

// gatedStore is a store that accepts no writes before it is opened.
type gatedStore struct {
	store.Store
	open chan struct{}
}

func (g *gatedStore) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	select {
	case <-g.open:
		return g.Store.Commit(ctx, t)
	case <-ctx.Done():
		return store.Result{}, ctx.Err()
	}
}

// The first requests of a new cluster's daemons wait for the roles that allow them.
func TestFirstRequestsWaitForTheDefaultRoles(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	g := &gatedStore{Store: inner, open: make(chan struct{})}
	c := startCluster(t, g)
	proxy := kubernetes.NewForConfigOrDie(c.configFor(certs.Daemon("kube-proxy")))
	answer := make(chan error, 1)
	go func() {
		_, err := proxy.CoreV1().Services("").List(context.Background(), metav1.ListOptions{ResourceVersion: "0"})
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("it was answered before there was a role: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(g.open)
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// lossyStore is a store that once does a write of a ConfigMap and loses the result. Other writes are by the server
// itself, and succeed.
type lossyStore struct {
	store.Store
	losesNext atomic.Bool
}

func (d *lossyStore) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	r, err := d.Store.Commit(ctx, t)
	key := ""
	switch {
	case len(t.Puts) > 0:
		key = t.Puts[0].Key
	case len(t.Deletes) > 0:
		key = t.Deletes[0]
	}
	if err == nil && strings.Contains(key, "/configmaps/default/") && d.losesNext.CompareAndSwap(true, false) {
		return store.Result{}, store.ErrUnavailable
	}
	return r, err
}

// A write with an unknown outcome is reported as such. It is not retried, and not checked against the stored object,
// which may be its own result.
func TestUnknownWriteOutcomesAreReported(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	d := &lossyStore{Store: inner}
	maps := kubernetes.NewForConfigOrDie(serveCluster(t, d).configFor(certs.Admin())).CoreV1().ConfigMaps("default")
	ctx := context.Background()
	m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Data = map[string]string{"k": "v"}
	for name, write := range map[string]func() error{
		"update": func() error { _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); return err },
		"create": func() error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
				metav1.CreateOptions{})
			return err
		},
		"delete": func() error { return maps.Delete(ctx, "c", metav1.DeleteOptions{}) },
	} {
		if name == "delete" {
			if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		d.losesNext.Store(true)
		if err := write(); !apierrors.IsTimeout(err) {
			t.Errorf("%s: %v, want that it timed out", name, err)
		}
	}
}

// slowStore is a store that, on demand, delays reads of its revision.
type slowStore struct {
	store.Store
	isHeld    atomic.Bool
	requested chan struct{}
	released  chan struct{}
}

func (b *slowStore) Revision(ctx context.Context) (int64, error) {
	if b.isHeld.Load() {
		b.requested <- struct{}{}
		<-b.released
	}
	return b.Store.Revision(ctx)
}

// A read that arrived before the server stops is answered, even if another server writes meanwhile. The cache must
// remain current until the last response. Otherwise the read would wait until its timeout.
func TestReadsBeforeShutdownAreAnswered(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	held := &slowStore{Store: s, requested: make(chan struct{}, 100), released: make(chan struct{})}
	stopping := serveCluster(t, held)
	client := kubernetes.NewForConfigOrDie(stopping.configFor(certs.SuperAdmin()))
	ctx := context.Background()
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	held.isHeld.Store(true)
	read := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		read <- err
	}()
	<-held.requested
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stopping.stop()
	}()
	waitUntil(t, func() error {
		conn, err := net.Dial("tcp", stopping.addr)
		if err == nil {
			_ = conn.Close()
			return errors.New("it takes connections still")
		}
		return nil
	})
	if _, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "/registry/configmaps/default/late", Value: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"late","namespace":"default"}}`)}}}); err != nil {
		t.Fatal(err)
	}
	held.isHeld.Store(false)
	close(held.released)
	if err := <-read; err != nil {
		t.Errorf("the read: %v", err)
	}
	<-stopped
}
