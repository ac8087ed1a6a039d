package run_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"clusterctl/daemons/run"
)

// If there are too many unidentified connections, the oldest are closed. Identified ones stay.
func TestUnidentifiedConnectionsAreLimited(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unidentified := run.UnidentifiedLimiter{Limit: 10, Grace: 1}
	accepted := make(chan struct{}, 100)
	server := run.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			run.ConnOf(r.Context()).Identify()
		}
	}), nil, slog.New(slog.DiscardHandler))
	connContext := server.ConnContext
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		accepted <- struct{}{}
		return connContext(ctx, conn)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(unidentified.Listen(ln)) }()
	defer func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		<-accepted
		return conn
	}
	ask := func(conn net.Conn, header string) error {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n"+header+"\r\n"); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200 OK")))
		return err
	}
	identified := dial()
	if err := ask(identified, "Authorization: Bearer x\r\n"); err != nil {
		t.Fatal(err)
	}
	strangers := make([]net.Conn, 15)
	for i := range strangers {
		strangers[i] = dial()
	}
	for i, conn := range strangers[:5] {
		if err := ask(conn, ""); err == nil {
			t.Errorf("connection %d of 15 is still served", i)
		}
	}
	for i, conn := range strangers[5:] {
		if err := ask(conn, ""); err != nil {
			t.Errorf("connection %d of the newest ten: %v", i, err)
		}
	}
	if err := ask(identified, ""); err != nil {
		t.Errorf("the client that was identified: %v", err)
	}
}

// Clients that all connect at once, for example after a restart, are all served in turn. None is closed before it had
// time to identify itself.
func TestConcurrentClientsAreAllServed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unidentified := run.UnidentifiedLimiter{Limit: 10, Grace: time.Hour}
	server := run.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { run.ConnOf(r.Context()).Identify() }),
		nil,
		slog.New(slog.DiscardHandler),
	)
	done := make(chan error, 1)
	go func() { done <- server.Serve(unidentified.Listen(ln)) }()
	defer func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	conns := make([]net.Conn, 30) // as many as can be served or wait
	for i := range conns {
		if conns[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conns[i].Close() }()
		if err := conns[i].SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range conns { // the oldest first: a place becomes free only when a client is identified
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200 OK"))); err != nil {
			t.Errorf("connection %d of 30 is not served: %v", i, err)
		}
	}
}

// Connections without a request hold their places only for a time. Then waiting connections get them.
func TestWaitingConnectionsReplaceUnidentifiedOnes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unidentified := run.UnidentifiedLimiter{Limit: 1, Grace: 50 * time.Millisecond}
	counted := unidentified.Listen(ln)
	var served []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		one, err := counted.Accept()
		if err != nil {
			t.Fatal(err)
		}
		served = append(served, one)
	}
	if _, err := served[0].Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the first one is still open: %v", err)
	}
	waits, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waits.Close() }()
	if err := counted.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the third may have been accepted before
		if one, err := counted.Accept(); err == nil {
			_ = one.Close()
		} else if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		} else {
			return
		}
	}
	t.Error("a listener that was closed accepts")
}

// pipeListener accepts the server's ends of pipes.
type pipeListener struct {
	net.Listener // nil: it has no address
	conns        chan net.Conn
	closed       chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

// If many clients return at once, a slow server must not close those that it has not served yet. So the connection that
// has been silent longest is closed first, and one that sends something now and then after three times the grace.
func TestSilentConnectionsAreReplacedBeforeThoseThatSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 2 * time.Second
		pipes := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		limited := (&run.UnidentifiedLimiter{Limit: 2, Grace: grace}).Listen(pipes)
		began := time.Now()
		closedAt := make([]time.Duration, 5)
		dial := func(i int) net.Conn {
			client, server := net.Pipe()
			t.Cleanup(func() { _ = client.Close() })
			pipes.conns <- server
			return client
		}
		go func() {
			for i := range closedAt {
				conn, err := limited.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					_, _ = io.Copy(io.Discard, conn)
					closedAt[i] = time.Since(began)
				}()
			}
		}()
		dripping, silent := dial(0), dial(1)
		drip := time.NewTicker(time.Second)
		go func() {
			for range drip.C {
				if _, err := dripping.Write([]byte("x")); err != nil {
					return
				}
			}
		}()
		for i := 2; i < len(closedAt); i++ {
			dial(i)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		drip.Stop()
		_ = dripping.Close()
		_ = silent.Close()
		_ = pipes.Close()
		if _, err := limited.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		// The silent one makes room for the third, which makes room for the fourth. Then the first gives way.
		want := []time.Duration{3 * grace, grace, 2 * grace}
		for i, at := range want {
			if closedAt[i] != at {
				t.Errorf("connection %d was closed after %s, expected %s", i, closedAt[i], at)
			}
		}
	})
}
