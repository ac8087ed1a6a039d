package run_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"clusterctl/daemons/run"
)

// Whoever connects and shows nothing is closed when there are too many of them, the oldest first; who was identified stays.
func TestConnectionsOfUnidentifiedClientsAreFewAtATime(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unidentified := run.Unidentified{Limit: 10}
	accepted := make(chan struct{}, 100)
	server := run.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			run.VisitorOf(r.Context()).Identify()
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
	known := dial()
	if err := ask(known, "Authorization: Bearer x\r\n"); err != nil {
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
	if err := ask(known, ""); err != nil {
		t.Errorf("the client that was identified: %v", err)
	}
}
