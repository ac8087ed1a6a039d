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
func TestHangingServersAreSkipped(t *testing.T) {
	ca, err := certs.NewCA("kubernetes", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := certs.Issue(ca, certs.SuperAdmin(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	hung, falls, well := newSilenceableProxy(t, ""), newSilenceableProxy(t, apiServer(t, ca)), apiServer(t, ca)
	live, err := Connect([]string{hung.address, falls.address, well}, ca.Cert, admin)
	if err != nil {
		t.Fatal(err)
	}
	client := live.discoveryClient
	start := time.Now()
	if _, err := client.ServerVersion(); err != nil {
		t.Fatalf("with one server that hangs: %v", err)
	}
	if falls.passedTotal() == 0 {
		t.Error("the second server was not tried next")
	}
	falls.silence()
	if _, err := client.ServerVersion(); err != nil {
		t.Fatalf("with another one that has fallen silent: %v", err)
	}
	// Waiting for the client's timeout of half a minute would not prove that it found a working server.
	if took := time.Since(start); took > 25*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestErrorsNameAllServersThatRefuse(t *testing.T) {
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

// silenceableProxy accepts connections and forwards them until it is silenced. Without a target it is silent from the
// beginning.
type silenceableProxy struct {
	address     string
	mu          sync.Mutex
	conns       []net.Conn
	passedBytes int
	isSilent    bool
	isClosed    bool
}

func newSilenceableProxy(t *testing.T, target string) *silenceableProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &silenceableProxy{address: l.Addr().String(), isSilent: target == ""}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			g.addConn(in)
			if target == "" {
				continue
			}
			out, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
			if err != nil {
				return
			}
			g.addConn(out)
			all.Go(func() { _, _ = io.Copy(gatedWriter{g, out}, in) })
			all.Go(func() { _, _ = io.Copy(gatedWriter{g, in}, out) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		g.mu.Lock()
		g.isClosed = true // also for connections that are being accepted
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		all.Wait()
	})
	return g
}

func (g *silenceableProxy) addConn(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed {
		_ = c.Close()
	}
	g.conns = append(g.conns, c)
}

func (g *silenceableProxy) silence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isSilent = true
}

func (g *silenceableProxy) passedTotal() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.passedBytes
}

// gatedWriter drops writes while the gate is silent.
type gatedWriter struct {
	g  *silenceableProxy
	to io.Writer
}

// Write implements io.Writer.
func (w gatedWriter) Write(data []byte) (int, error) {
	w.g.mu.Lock()
	quiet := w.g.isSilent
	w.g.passedBytes += len(data)
	w.g.mu.Unlock()
	if quiet {
		return len(data), nil
	}
	return w.to.Write(data)
}
