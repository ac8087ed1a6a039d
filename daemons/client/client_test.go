package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// server is an API server whose process can hang, as with SIGSTOP: the kernel still accepts connections, and nothing is
// sent on them.
type server struct {
	*httptest.Server
	listener *stoppableListener
}

type stoppableListener struct {
	net.Listener
	mu    sync.Mutex
	shut  bool
	conns []*stoppableConn
}

type stoppableConn struct {
	net.Conn
	stopped chan struct{}
	once    sync.Once
}

func (g *stoppableListener) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &stoppableConn{Conn: conn, stopped: make(chan struct{})}
	if g.shut {
		s.stop()
	}
	g.conns = append(g.conns, s)
	return s, nil
}

// hang stops all output on present and future connections.
func (g *stoppableListener) hang() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for _, c := range g.conns {
		c.stop()
	}
}

func (c *stoppableConn) stop() { c.once.Do(func() { close(c.stopped) }) }

func (c *stoppableConn) Write(b []byte) (int, error) {
	select {
	case <-c.stopped:
		return len(b), nil // discarded
	default:
		return c.Conn.Write(b)
	}
}

func serve(t *testing.T, name string) *server {
	t.Helper()
	s := &server{listener: &stoppableListener{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, name)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/watch" {
			<-r.Context().Done()
		}
	}))
	s.listener.Listener = s.Listener
	s.Listener, s.EnableHTTP2 = s.listener, true
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// config returns the configuration of a daemon with all of the servers. The certificate of httptest is for example.com.
func config(t *testing.T, servers ...*server) *rest.Config {
	t.Helper()
	var list []string
	for _, s := range servers {
		list = append(list, s.Listener.Addr().String())
	}
	pool := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: servers[0].Certificate().Raw})
	cfg := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: pool}}
	if err := useServers(cfg, list, "example.com"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cfg.Transport.(interface{ CloseIdleConnections() }).CloseIdleConnections)
	return cfg
}

func get(ctx context.Context, cfg *rest.Config, path string) (*http.Response, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, "GET", cfg.Host+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(r)
}

func answeringServer(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	answer, err := get(t.Context(), cfg, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A daemon finds a live API server long before it gives up a server that hangs, whether the others are dead or hang.
// Proves S14.
func TestClientsFindALiveServer(t *testing.T) {
	for _, broken := range []string{"dead", "hanging"} {
		t.Run(broken, func(t *testing.T) {
			first, second := serve(t, "first"), serve(t, "second")
			cfg := config(t, first, second)
			if broken == "dead" {
				first.Listener.Close()
			} else {
				first.listener.hang()
			}
			start := time.Now()
			if name := answeringServer(t, cfg); name != "second" {
				t.Errorf("%s answered", name)
			}
			if took := time.Since(start); took > dialTimeout/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// A watch at a server that stops responding is closed soon, and the next request goes to another server.
// Proves S14.
func TestConnectionsToHangingServersAreClosed(t *testing.T) {
	first, second := serve(t, "first"), serve(t, "second")
	cfg := config(t, first, second)
	watch, err := get(t.Context(), cfg, "/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	if _, err := io.ReadFull(watch.Body, make([]byte, len("first"))); err != nil || watch.ProtoMajor != 2 {
		t.Fatalf("HTTP %d: %v", watch.ProtoMajor, err)
	}
	first.listener.hang()
	start := time.Now()
	if _, err := watch.Body.Read(make([]byte, 1)); err == nil {
		t.Error("a server that hangs sent something")
	}
	if name := answeringServer(t, cfg); name != "second" {
		t.Errorf("%s answered", name)
	}
	if took := time.Since(start); took > 2*(pingAfter+pingTimeout) {
		t.Errorf("it took %s", took)
	}
}

func TestIdleWatchesStayOpen(t *testing.T) {
	cfg := config(t, serve(t, "first"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*(pingAfter+pingTimeout))
	defer cancel()
	watch, err := get(ctx, cfg, "/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	if _, err := io.ReadAll(watch.Body); err == nil || ctx.Err() == nil {
		t.Errorf("the watch ended early: %v", err)
	}
}

// A client-go watch continues after a refused connection, and lists all objects again after other errors.
// Proves S14.
func TestNoReachableServerIsARefusedConnection(t *testing.T) {
	for _, broken := range []string{"dead", "hanging"} {
		t.Run(broken, func(t *testing.T) {
			s := serve(t, broken)
			if broken == "dead" {
				s.Listener.Close()
			} else {
				s.listener.hang()
			}
			d := newDialer([]string{s.Listener.Addr().String()}, &tls.Config{ServerName: serverName})
			d.failureTimeout = 2 * retryInterval
			_, err := d.dial(t.Context())
			if !utilnet.IsConnectionRefused(err) || !strings.Contains(err.Error(), s.Listener.Addr().String()) {
				t.Error(err)
			}
		})
	}
}

// Daemons that wait while no server is available connect as soon as one is, however long each request has waited.
// Proves S14.
func TestRequestsWaitForAServer(t *testing.T) {
	gone := serve(t, "gone")
	cfg := config(t, gone)
	address := gone.Listener.Addr().String()
	gone.Listener.Close()
	var all sync.WaitGroup
	answers := make(chan error, 10)
	for range cap(answers) {
		all.Go(func() {
			r, err := get(t.Context(), cfg, "/")
			if err == nil {
				r.Body.Close()
			}
			answers <- err
		})
	}
	select {
	case err := <-answers:
		t.Fatalf("a request did not wait: %v", err)
	case <-time.After(2 * retryInterval):
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	back := serve(t, "back")
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", back.Listener.Addr().String())
			if err != nil {
				in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); out.Close() }()
			go func() { _, _ = io.Copy(in, out); in.Close() }()
		}
	}()
	start := time.Now()
	all.Wait()
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	// One after another, each request would wait on its own.
	if took := time.Since(start); took > time.Duration(cap(answers)-1)*retryInterval {
		t.Errorf("it took %s", took)
	}
	l.Close()
}

// A server whose certificate is from another authority does not belong to the cluster.
func TestServersOfAnotherAuthorityAreRejected(t *testing.T) {
	s := serve(t, "stranger")
	d := newDialer([]string{s.Listener.Addr().String()},
		&tls.Config{RootCAs: x509.NewCertPool(), ServerName: serverName})
	if _, err := d.dial(t.Context()); err == nil {
		t.Fatal("took a server that it cannot verify")
	}
}

// A kubeconfig can name a proxy. A proxy from the environment is ignored, because it leads outside the cluster.
func TestConnectionsUseNoProxy(t *testing.T) {
	for more, want := range map[string]string{"": "<nil>",
		"    proxy-url: http://proxy.example:3128\n": "http://proxy.example:3128"} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		text := "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: https://192.0.2.1:6443\n" +
			more + "contexts:\n- {name: c, context: {cluster: c}}\ncurrent-context: c\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Config(Options{Kubeconfig: file})
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Proxy == nil {
			t.Fatal("the environment's proxy is used")
		}
		got, err := cfg.Proxy(httptest.NewRequest(http.MethodGet, cfg.Host, nil))
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("the proxy is %v, %v, want %s", got, err, want)
		}
	}
}
