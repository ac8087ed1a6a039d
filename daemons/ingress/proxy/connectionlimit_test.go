package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"
)

// connect connects to a listener of the proxy.
func connect(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return nc
}

// sendGet sends a request and reads the response, on a persistent connection.
func sendGet(nc net.Conn, path string) error {
	if _, err := io.WriteString(nc, "GET "+path+" HTTP/1.1\r\nHost: a.example\r\n\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

func (e *Engine) connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// isClosed reports whether the proxy has closed a connection without a response.
func isClosed(t *testing.T, nc net.Conn) bool {
	t.Helper()
	_, err := nc.Read(make([]byte, 1))
	if os.IsTimeout(err) {
		return false
	}
	return err != nil
}

// At the connection limit, the connection that has waited longest for a request is closed: one without any data, one
// with a partial head, or an HTTP/2 connection. New connections are served on every listener.
// Proves S32.
func TestTheLongestIdleConnectionIsClosedForANewOne(t *testing.T) {
	const maximum = 4
	p := startProxy(t, func(c *Config) { c.MaxConns = maximum })
	p.addRoute("a.example", "/", []string{startBackend(t, func(http.ResponseWriter, *http.Request) {})})
	silent := connect(t, p.plain)
	eventually(t, "nobody is accepted", func() bool { return p.e.connections() == 1 })
	half := connect(t, p.plain)
	if _, err := io.WriteString(half, "GET / HTTP/1.1\r\nHost: a.exa"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a second is not accepted", func() bool { return p.e.connections() == 2 })
	two := p.floodClient(t, true)
	eventually(t, "one of HTTP/2 is not counted", func() bool { return p.e.connections() == 3 })
	kept := connect(t, p.plain)
	if err := sendGet(kept, "/"); err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(connect(t, p.secure), &tls.Config{RootCAs: p.roots, ServerName: "a.example"})
	if err := sendGet(secure, "/"); err != nil {
		t.Fatalf("beyond the bound: %v", err)
	}
	if !isClosed(t, silent) {
		t.Error("who never said anything stays")
	}
	if err := sendGet(connect(t, p.plain), "/"); err != nil {
		t.Fatal(err)
	}
	if !isClosed(t, half) {
		t.Error("who has half of a head stays")
	}
	if err := sendGet(connect(t, p.plain), "/"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-two.closed:
	case <-time.After(20 * time.Second):
		t.Error("a connection of HTTP/2 without a request stays")
	}
	if err := sendGet(kept, "/"); err != nil {
		t.Errorf("who has asked since: %v", err)
	}
	if err := sendGet(secure, "/"); err != nil {
		t.Errorf("who has asked since over TLS: %v", err)
	}
	eventually(t, "there are more than may be", func() bool { return p.e.connections() <= maximum })
}

// If all connections are handling requests, none is closed. A new connection waits until one has its response.
// Proves S32.
func TestBusyConnectionsAreNotClosedForNewOnes(t *testing.T) {
	const maximum = 3
	p := startProxy(t, func(c *Config) { c.MaxConns = maximum })
	requested, answer := make(chan struct{}, maximum), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	p.addRoute("a.example", "/", []string{startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			requested <- struct{}{}
			<-answer
		}
	})})
	slow := make(chan error, maximum)
	for range maximum {
		nc := connect(t, p.plain)
		go func() { slow <- sendGet(nc, "/slow") }()
		<-requested
	}
	next, done := connect(t, p.plain), make(chan error, 1)
	go func() { done <- sendGet(next, "/") }()
	eventually(t, "nobody waits for room", func() bool { return p.e.roomWaiters.Load() == 1 })
	select {
	case err := <-done:
		t.Errorf("one more than may be has an answer: %v", err)
	case err := <-slow:
		t.Errorf("one that is answered ends: %v", err)
	default:
	}
	answer <- struct{}{}
	if err := <-slow; err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("who waited for room: %v", err)
	}
	release()
	for range maximum - 1 {
		if err := <-slow; err != nil {
			t.Error(err)
		}
	}
}

// A closing engine does not wait for room: accepted connections are served.
// Proves S32.
func TestNoConnectionWaitsForRoomWhenTheEngineCloses(t *testing.T) {
	p := startProxy(t, func(c *Config) { c.MaxConns = 1 })
	requested, answer := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	p.addRoute("a.example", "/", []string{startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(requested)
			<-answer
		}
	})})
	busy, slow := connect(t, p.plain), make(chan error, 1)
	go func() { slow <- sendGet(busy, "/slow") }()
	<-requested
	next, done := connect(t, p.plain), make(chan error, 1)
	go func() { done <- sendGet(next, "/") }()
	eventually(t, "nobody waits for room", func() bool { return p.e.roomWaiters.Load() == 1 })
	p.e.admitAll()
	if err := <-done; err != nil {
		t.Error(err)
	}
	release()
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

// Any number of clients that connect without sending data, or that start a handshake, use limited memory. Other clients
// are served in the meantime.
// Proves S32.
func TestFloodsOfConnectionsAreLimited(t *testing.T) {
	const maximum = 64
	p := startProxy(t, func(c *Config) { c.MaxConns = maximum })
	p.addRoute("a.example", "/", []string{startBackend(t, func(http.ResponseWriter, *http.Request) {})})
	for i := range 10 * maximum {
		at := p.plain
		if i%2 == 0 {
			at = p.secure
		}
		nc := connect(t, at)
		if i%3 == 0 {
			_, _ = io.WriteString(nc, "\x16\x03\x01")
		}
		if i%maximum == 0 {
			p.checkOtherClient(t)
		}
		if n := p.e.connections(); n > maximum {
			t.Fatalf("there are %d connections", n)
		}
	}
	p.checkOtherClient(t)
}

// Both clients have sent nothing, or not yet enough to recognize HTTP/2. The engine does not wait for them as long as
// for an idle connection.
func TestSilentConnectionsDoNotDelayTheEnd(t *testing.T) {
	for name, data := range map[string]string{"nothing": "", "a part of the preface": prefaceHTTP2[:10]} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, func(cfg *Config) { cfg.Idle, cfg.HeadTime = time.Hour, 100*time.Millisecond })
			c, err := net.Dial("tcp", p.plain.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, data); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the connection is not registered", func() bool { return p.e.connections() == 1 })
			p.stopAccepting()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p.e.Close(ctx)
			if ctx.Err() != nil {
				t.Error("the engine has waited for the whole time that it was given")
			}
		})
	}
}
