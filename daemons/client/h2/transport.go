// Package h2 is an HTTP/2 client (RFC 9113) in place of net/http's. It is for daemons with many small requests and long
// watches on one connection to their API server. A request needs no goroutine: the caller writes it to the connection's
// buffer. Concurrent requests are sent in one TLS record. golang.org/x/net/http2 reads the frames. Compression and
// upgrades are not supported.
package h2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Transport sends requests to a server, or to any of several equivalent ones.
type Transport struct {
	// Dial returns a connection to a server that speaks HTTP/2. It is required.
	Dial func(ctx context.Context) (net.Conn, error)
	// Silence is how long the server may send nothing while it owes an answer, before it is pinged. Grace is the time
	// for the answer, before the connection is closed. If Silence is zero, servers are not pinged.
	Silence, Grace time.Duration
	// Idle is how long a connection without requests is retained. Zero means for ever.
	Idle time.Duration

	mu      sync.Mutex
	conns   []*conn
	dialing *dialing
}

// dialing is a connection that is being established, with the number of requests that wait for it.
type dialing struct {
	done    chan struct{}
	err     error
	waiting int
	cancel  context.CancelFunc
}

// maxRetries is how often a request is sent again if a server reports that it did not process the request. The first
// retry is immediate, for connections that have just ended. Later retries wait at least minRetryWait and longer each
// time, for servers without capacity.
const (
	maxRetries   = 6
	minRetryWait = 50 * time.Millisecond
)

// errNotProcessed means that a request was not processed and may be sent on another connection.
var errNotProcessed = errors.New("the server takes no further requests on this connection")

// RoundTrip sends a request, and returns the answer as soon as its headers have arrived.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	if body == http.NoBody {
		body = nil
	}
	for try := 0; ; try++ {
		answer, err := t.tryOnce(r, body)
		if !errors.Is(err, errNotProcessed) || try == maxRetries {
			return answer, err
		}
		if try > 0 {
			wait := minRetryWait << (try - 1)
			select {
			case <-time.After(wait/2 + rand.N(wait/2)):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		if body != nil {
			if r.GetBody == nil {
				return nil, err
			}
			if body, err = r.GetBody(); err != nil {
				return nil, fmt.Errorf("begin the request's body again: %w", err)
			}
		}
	}
}

// tryOnce sends a request on a connection. It closes the body when it is no longer needed, at the latest when the
// answer has ended.
func (t *Transport) tryOnce(r *http.Request, body io.ReadCloser) (*http.Response, error) {
	ctx := r.Context()
	small, err := smallBody(r, body)
	for err == nil {
		var c *conn
		if c, err = t.acquireConn(ctx); err != nil {
			break
		}
		var s *stream
		if s, err = c.startStream(r, body, small); s != nil {
			return s.awaitResponse(ctx)
		}
	}
	if body != nil {
		_ = body.Close() // the caller gets the more important error
	}
	return nil, err
}

// acquireConn returns a connection with capacity for a request, and establishes one if there is none.
func (t *Transport) acquireConn(ctx context.Context) (*conn, error) {
	for {
		t.mu.Lock()
		for _, c := range t.conns {
			if c.hasRoom() {
				t.mu.Unlock()
				return c, nil
			}
		}
		d := t.dialing
		if d == nil {
			d = t.dial()
		}
		d.waiting++
		t.mu.Unlock()
		err := t.awaitDial(ctx, d)
		if err != nil {
			return nil, err
		}
	}
}

// awaitDial waits for a connection that is being established. The attempt is cancelled when no request waits for it any
// more.
func (t *Transport) awaitDial(ctx context.Context, d *dialing) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.waiting--; d.waiting == 0 && t.dialing == d {
		d.cancel()
		t.dialing = nil
	}
	return ctx.Err()
}

// dial starts to establish a connection. The caller holds t.mu.
func (t *Transport) dial() *dialing {
	ctx, cancel := context.WithCancel(context.Background())
	d := &dialing{done: make(chan struct{}), cancel: cancel}
	t.dialing = d
	go func() {
		defer cancel()
		c, err := t.connect(ctx)
		t.mu.Lock()
		defer t.mu.Unlock()
		d.err = err
		if err == nil {
			t.conns = append(t.conns, c)
		}
		if t.dialing == d {
			t.dialing = nil
		}
		close(d.done)
	}()
	return d
}

func (t *Transport) connect(ctx context.Context) (*conn, error) {
	nc, err := t.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c := newConn(t, nc)
	if err := c.writePreface(); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("greet the server: %w", err)
	}
	go c.read()
	return c, nil
}

// removeConn removes a connection that accepts no more requests.
func (t *Transport) removeConn(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = slices.DeleteFunc(t.conns, func(other *conn) bool { return other == c })
}

// CloseIdleConnections closes the connections without requests.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	conns := slices.Clone(t.conns)
	t.mu.Unlock()
	for _, c := range conns {
		c.closeIfIdle()
	}
}
