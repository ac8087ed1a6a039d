package workload

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"clusterctl/certs"
)

// The client skips an API server that hangs while its machine still accepts connections. It also skips one that stops
// answering during a request.
// Proves S10.
func TestAServerThatHangsIsPassedOver(t *testing.T) {
	ca, err := certs.NewCA("kubernetes", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := certs.Issue(ca, certs.SuperAdmin(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	hung, falls, well := newGate(t, ""), newGate(t, apiServer(t, ca)), apiServer(t, ca)
	live, err := Connect([]string{hung.address, falls.address, well}, ca.Cert, admin)
	if err != nil {
		t.Fatal(err)
	}
	client := live.served
	began := time.Now()
	if _, err := client.ServerVersion(); err != nil {
		t.Fatalf("with one server that hangs: %v", err)
	}
	if falls.passed() == 0 {
		t.Error("the second server was not tried next")
	}
	falls.silence()
	if _, err := client.ServerVersion(); err != nil {
		t.Fatalf("with another one that has fallen silent: %v", err)
	}
	// Waiting for the client's timeout of half a minute would not prove that it found a working server.
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestOfServersThatAllRefuseEachIsNamed(t *testing.T) {
	ca, err := certs.NewCA("kubernetes", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := certs.NewCA("kubernetes", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := &servers{list: []string{apiServer(t, other), apiServer(t, other)}}
	admin, err := certs.Issue(ca, certs.SuperAdmin(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	live, err := Connect(s.list, ca.Cert, admin)
	if err != nil {
		t.Fatal(err)
	}
	s.tls = live.rest.Transport.(*http.Transport).TLSClientConfig
	_, err = s.dial(t.Context(), "tcp", "")
	for _, server := range s.list {
		if err == nil || !strings.Contains(err.Error(), server) {
			t.Errorf("%v does not name %s", err, server)
		}
	}
}

// apiServer starts a server that only answers its version.
func apiServer(t *testing.T, ca certs.Pair) (address string) {
	t.Helper()
	own, err := certs.Issue(ca, certs.APIServer("cluster.local", "10.96.0.1", []string{"127.0.0.1"}), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(version.Info{Major: "1"})
	}))
	server.Config.ErrorLog = nil
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// gate accepts connections and forwards them until it is silenced. Without a target it is silent from the beginning.
type gate struct {
	address string
	mu      sync.Mutex
	conns   []net.Conn
	through int
	quiet   bool
	ended   bool
}

func newGate(t *testing.T, target string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{address: l.Addr().String(), quiet: target == ""}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			g.keep(in)
			if target == "" {
				continue
			}
			out, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
			if err != nil {
				return
			}
			g.keep(out)
			all.Go(func() { _, _ = io.Copy(gated{g, out}, in) })
			all.Go(func() { _, _ = io.Copy(gated{g, in}, out) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		g.mu.Lock()
		g.ended = true // also for connections that are being accepted
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		all.Wait()
	})
	return g
}

func (g *gate) keep(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		_ = c.Close()
	}
	g.conns = append(g.conns, c)
}

func (g *gate) silence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quiet = true
}

func (g *gate) passed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.through
}

// gated drops writes while the gate is silent.
type gated struct {
	g  *gate
	to io.Writer
}

// Write implements io.Writer.
func (w gated) Write(data []byte) (int, error) {
	w.g.mu.Lock()
	quiet := w.g.quiet
	w.g.through += len(data)
	w.g.mu.Unlock()
	if quiet {
		return len(data), nil
	}
	return w.to.Write(data)
}
