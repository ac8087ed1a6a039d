// Package conformance tests the API server against the documentation of the Kubernetes API: every kind that discovery
// lists, every verb and every refusal, with the messages that clients read. One server, created as the daemon creates
// it, answers all tests over HTTPS. The tests only use requests. The store is a real etcd in this process, because this
// is what real servers use. -store=memory runs the same tests with the store in memory, which package storetest tests
// against the same contract. Controllers and kubelets do not run here, and no test waits for them.
package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd"
	"clusterctl/daemons/store/memory"
	"clusterctl/daemons/store/storetest"
)

var storeName = flag.String("store", "etcd", "what the server keeps its objects in: etcd or memory")

// server is an API server that runs until the test ends.
type server struct {
	url  string
	ca   certs.Pair
	stop func()
}

// openStore opens the store that the flag names.
func openStore(t testing.TB) store.Store {
	t.Helper()
	if *storeName == "memory" {
		s := memory.New()
		t.Cleanup(s.Close)
		return s
	}
	s, err := etcd.Open(etcd.Config{Endpoints: []string{storetest.Etcd(t)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // an error does not matter, because the test is over
	return s
}

// startServer starts a server with a store.
func startServer(t testing.TB, s store.Store) *server {
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
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cfg := config.DefaultAPIServer()
	cfg.SecurePort, cfg.AdvertiseAddress = 0, "10.1.2.3"
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = file("server.crt", leaf.Cert), file("server.key", leaf.Key)
	cfg.ClientCAFile = file("ca.crt", ca.Cert)
	cfg.KubeletCertificateAuthority = cfg.ClientCAFile
	cfg.ServiceAccountSigningKeyFile = file("sa.key", private)
	cfg.ServiceAccountKeyFiles = []string{file("sa.pub", public)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- apiserver.Serve(ctx, cfg, s, ln, env) }()
	out := &server{url: "https://" + ln.Addr().String(), ca: ca}
	stopped := false
	out.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(out.stop)
	eventually(t, func() error { return env.Health.Err(true) })
	return out
}

// clientFor returns a client with a certificate.
func (s *server) clientFor(t testing.TB, who certs.Request) *client {
	t.Helper()
	who.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	pair, err := certs.Issue(s.ca, who, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return s.clientWith(t, own)
}

// clientWith returns a client with certificates, or with none.
func (s *server) clientWith(t testing.TB, own ...tls.Certificate) *client {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.ca.Cert) {
		t.Fatal("the CA has no certificate")
	}
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2:  true,
		DisableCompression: true, // so that tests see compressed answers
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{url: s.url, http: &http.Client{Transport: transport, Timeout: time.Minute}}
}

// eventually waits until a condition returns no error.
func eventually(t testing.TB, condition func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
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

// sharedClient returns a client of a server for the tests, each of which uses its own namespaces.
func sharedClient(t *testing.T) *client {
	t.Helper()
	s := startServer(t, openStore(t))
	return s.clientFor(t, certs.Admin())
}

// createNamespace creates a namespace with the service account that pods need.
func (c *client) createNamespace(t testing.TB, name string) {
	t.Helper()
	c.mustAnswer(t, http.StatusCreated, post("/api/v1/namespaces", object{"metadata": object{"name": name}}))
	c.mustAnswer(t, http.StatusCreated, post(fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts", name),
		object{"metadata": object{"name": "default"}}))
}

// TestMain runs many tests in parallel, because they mostly wait for answers.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
