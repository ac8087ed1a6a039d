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

// cluster is a server as the daemon runs it, with certificates in files.
type cluster struct {
	t    testing.TB
	ca   certs.Pair
	addr string
	stop func()

	unready func() error // why it is not ready; nil if it is
}

func file(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve starts a server and waits until it is ready. more changes its configuration.
func serve(t testing.TB, s store.Store, more ...func(*config.APIServer)) *cluster {
	t.Helper()
	c := launch(t, s, more...)
	wait(t, c.unready)
	return c
}

// launch is like serve, but does not wait.
func launch(t testing.TB, s store.Store, more ...func(*config.APIServer)) *cluster {
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
	return &cluster{
		t:       t,
		ca:      ca,
		addr:    ln.Addr().String(),
		stop:    stop,
		unready: func() error { return env.Health.Err(true) },
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
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = file(t, dir, "s.crt", leaf.Cert), file(t, dir, "s.key", leaf.Key)
	cfg.ClientCAFile = file(t, dir, "ca.crt", ca.Cert)
	cfg.KubeletCertificateAuthority = cfg.ClientCAFile
	cfg.ServiceAccountSigningKeyFile = file(t, dir, "sa.key", private)
	cfg.ServiceAccountKeyFiles = []string{file(t, dir, "sa.pub", public)}
	for _, change := range more {
		change(&cfg)
	}
	return cfg, ca
}

// wait returns when condition returns nil.
func wait(t testing.TB, condition func() error) {
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
			t.Fatalf("waited in vain: %v", err)
		}
	}
}

func (c *cluster) as(r certs.Request) *rest.Config {
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
func TestReadinessChecksNeverPassBeforeRun(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	cfg, _ := serverConfig(t, func(cfg *config.APIServer) {
		cfg.EncryptionProviderConfig = file(t, t.TempDir(), "encryption.yaml", []byte(encryption("a")))
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

func TestTheDaemonServesWhatEveryClusterHas(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serve(t, s)
	client := kubernetes.NewForConfigOrDie(c.as(certs.Admin()))
	ctx := context.Background()
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	wait(t, func() error {
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

// gated is a store that accepts no writes before it is opened.
type gated struct {
	store.Store
	open chan struct{}
}

func (g *gated) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	select {
	case <-g.open:
		return g.Store.Commit(ctx, t)
	case <-ctx.Done():
		return store.Result{}, ctx.Err()
	}
}

// The first requests of a new cluster's daemons wait for the roles that allow them.
func TestADaemonIsNotRefusedBeforeTheRolesAreThere(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	g := &gated{Store: inner, open: make(chan struct{})}
	c := launch(t, g)
	proxy := kubernetes.NewForConfigOrDie(c.as(certs.Daemon("kube-proxy")))
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

// deaf is a store that once does a write of a ConfigMap and loses the result. Other writes are by the server itself,
// and succeed.
type deaf struct {
	store.Store
	now atomic.Bool
}

func (d *deaf) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	r, err := d.Store.Commit(ctx, t)
	key := ""
	switch {
	case len(t.Puts) > 0:
		key = t.Puts[0].Key
	case len(t.Deletes) > 0:
		key = t.Deletes[0]
	}
	if err == nil && strings.Contains(key, "/configmaps/default/") && d.now.CompareAndSwap(true, false) {
		return store.Result{}, store.ErrUnavailable
	}
	return r, err
}

// A write with an unknown outcome is reported as such. It is not retried, and not checked against the stored object,
// which may be its own result.
func TestAWriteOfUnknownOutcomeIsToldAsThat(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	d := &deaf{Store: inner}
	maps := kubernetes.NewForConfigOrDie(serve(t, d).as(certs.Admin())).CoreV1().ConfigMaps("default")
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
		d.now.Store(true)
		if err := write(); !apierrors.IsTimeout(err) {
			t.Errorf("%s: %v, want that it timed out", name, err)
		}
	}
}

// busy is a store that, on demand, delays reads of its revision.
type busy struct {
	store.Store
	held  atomic.Bool
	asked chan struct{}
	free  chan struct{}
}

func (b *busy) Revision(ctx context.Context) (int64, error) {
	if b.held.Load() {
		b.asked <- struct{}{}
		<-b.free
	}
	return b.Store.Revision(ctx)
}

// A read that arrived before the server stops is answered, even if another server writes meanwhile. The cache must
// remain current until the last response. Otherwise the read would wait until its timeout.
func TestAReadThatCameBeforeAStopIsAnswered(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	held := &busy{Store: s, asked: make(chan struct{}, 100), free: make(chan struct{})}
	stopping := serve(t, held)
	client := kubernetes.NewForConfigOrDie(stopping.as(certs.SuperAdmin()))
	ctx := context.Background()
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	held.held.Store(true)
	read := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		read <- err
	}()
	<-held.asked
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stopping.stop()
	}()
	wait(t, func() error {
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
	held.held.Store(false)
	close(held.free)
	if err := <-read; err != nil {
		t.Errorf("the read: %v", err)
	}
	<-stopped
}
