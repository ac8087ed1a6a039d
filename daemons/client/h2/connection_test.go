package h2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clusterctl/daemons/client/h2"
)

func TestAllRequestsFailWhenTheConnectionEnds(t *testing.T) {
	requested := make(chan struct{}, 2)
	s := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			w.(http.Flusher).Flush()
		}
		requested <- struct{}{}
		<-r.Context().Done()
	})
	watch, err := s.do(t.Context(), "GET", "/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	silent := make(chan error)
	go func() {
		_, err := s.do(t.Context(), "GET", "/silent", nil)
		silent <- err
	}()
	<-requested
	<-requested
	s.CloseClientConnections()
	if _, err := io.ReadAll(watch.Body); err != io.ErrUnexpectedEOF { //nolint:errorlint // watchers compare it
		t.Errorf("the watch ended with %v", err)
	}
	if err := <-silent; err == nil {
		t.Error("a request was answered without a server")
	}
}

// TestRequestsContinueDuringAGracefulShutdown covers a graceful shutdown: the server sends GOAWAY, and answers the
// requests that it has started.
func TestRequestsContinueDuringAGracefulShutdown(t *testing.T) {
	var served atomic.Int32
	s := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1)%7 == 0 {
			w.Header().Set("Connection", "close")
		}
		echo(w, r)
	})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				text := fmt.Sprint("text of ", i)
				r, err := s.do(t.Context(), "POST", "/", strings.NewReader(text))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || string(got) != text {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	all.Wait()
	if s.dials.Load() < 10 {
		t.Errorf("%d connections were made", s.dials.Load())
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	closed := make(chan struct{}, 10)
	s := serve(t, nil, echo)
	s.Transport.Idle = time.Millisecond
	inner := s.Transport.Dial
	s.Transport.Dial = func(ctx context.Context) (net.Conn, error) {
		c, err := inner(ctx)
		return &closeRecorder{Conn: c, closed: closed}, err
	}
	for range 3 {
		r, err := s.do(t.Context(), "GET", "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		<-closed
	}
}

type closeRecorder struct {
	net.Conn
	closed chan struct{}
}

func (n *closeRecorder) Close() error {
	n.closed <- struct{}{}
	return n.Conn.Close()
}

func TestWaitingForAConnectionEndsWithTheRequest(t *testing.T) {
	given := make(chan struct{})
	tr := &h2.Transport{Dial: func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		close(given)
		return nil, ctx.Err()
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "https://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	<-given
}
