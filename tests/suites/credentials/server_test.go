package credentials

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
)

// server is an API server in the test process, with the CA of its client certificates.
type server struct {
	t    *testing.T
	ca   certs.Pair
	addr string
}

func startServer(t *testing.T) *server {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, content, 0o600))
		return path
	}
	ca, err := certs.NewCA("kubernetes", 0, now)
	must(err)
	leaf, err := certs.Issue(ca, certs.APIServer("cluster.local", "10.96.0.1", nil), now)
	must(err)
	private, public, err := certs.NewKey()
	must(err)
	cfg := config.DefaultAPIServer()
	cfg.SecurePort, cfg.AdvertiseAddress = 0, "10.0.0.1"
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = file("s.crt", leaf.Cert), file("s.key", leaf.Key)
	cfg.ClientCAFile = file("ca.crt", ca.Cert)
	cfg.KubeletCertificateAuthority = cfg.ClientCAFile
	cfg.ServiceAccountSigningKeyFile, cfg.ServiceAccountKeyFiles = file("sa.key", private),
		[]string{file("sa.pub", public)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	store, env := memory.New(), run.NewEnv(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- apiserver.Serve(ctx, cfg, store, ln, env) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		store.Close()
	})
	for deadline := time.Now().Add(time.Minute); env.Health.Err(true) != nil; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(env.Health.Err(true))
		}
	}
	return &server{t, ca, ln.Addr().String()}
}

// client sends requests to the server with a client certificate.
type client struct {
	t    *testing.T
	host string
	http *http.Client
}

func (s *server) clientFor(r certs.Request) *client {
	s.t.Helper()
	r.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	pair, err := certs.Issue(s.ca, r, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	cfg := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.Cert, CertData: pair.Cert,
		KeyData: pair.Key}}
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return &client{s.t, "https://" + s.addr, h}
}

// do sends a request and returns the HTTP status and the body of the response.
func (c *client) do(method, path, contentType string, body []byte) (int, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	answer, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// create creates an object. It is no error if the object exists.
func (c *client) create(path string, object map[string]any) {
	c.t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		c.t.Fatal(err)
	}
	if code, text := c.do("POST", path, "application/json", body); code != 201 && code != 409 {
		c.t.Fatalf("%s: %d %s", path, code, text)
	}
}
