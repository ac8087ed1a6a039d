// Package h2 is the client's side of HTTP/2 (RFC 9113), in place of net/http's, for daemons that have many small
// requests and long watches on one connection to their API server. A request costs no goroutine: who makes it puts it
// into the connection's buffer, and what several have to say at one time goes out in one record. Frames are read by
// golang.org/x/net/http2. Answers are not asked for compressed, and nothing is upgraded.
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

// Transport sends requests to one server, or to several of which any will do.
type Transport struct {
	// Dial returns a connection on which the other end speaks HTTP/2. Required.
	Dial func(ctx context.Context) (net.Conn, error)
	// Silence is how long the server may say nothing while it owes an answer, before it is asked whether it is there;
	// Grace is how long it may take to say so, before the connection is given up. Zero Silence: it is never asked.
	Silence, Grace time.Duration
	// Idle is how long a connection is kept on which nothing is asked. Zero: for ever.
	Idle time.Duration

	mu      sync.Mutex
	conns   []*conn
	dialing *dialing
}

// dialing is a connection in the making, and how many requests wait for it.
type dialing struct {
	done    chan struct{}
	err     error
	waiting int
	cancel  context.CancelFunc
}

// retries is how often a request is sent again that a server has said it did not begin: at once the first time, as on a
// connection that ended just then, and after longer and longer waits when the server has no room.
const (
	retries   = 6
	firstWait = 50 * time.Millisecond
)

// errElsewhere is of a request that was not begun, and may be sent on another connection.
var errElsewhere = errors.New("the server takes no further requests on this connection")

// RoundTrip sends a request, and returns the answer as soon as its headers are there.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	if body == http.NoBody {
		body = nil
	}
	for try := 0; ; try++ {
		answer, err := t.once(r, body)
		if !errors.Is(err, errElsewhere) || try == retries {
			return answer, err
		}
		if try > 0 {
			wait := firstWait << (try - 1)
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

// once sends a request on some connection. The body is closed when it is no longer needed, at the latest when the
// answer has ended.
func (t *Transport) once(r *http.Request, body io.ReadCloser) (*http.Response, error) {
	ctx := r.Context()
	small, err := whole(r, body)
	for err == nil {
		var c *conn
		if c, err = t.conn(ctx); err != nil {
			break
		}
		var s *stream
		if s, err = c.begin(r, body, small); s != nil {
			return s.answer(ctx)
		}
	}
	if body != nil {
		_ = body.Close() // the caller is told what matters
	}
	return nil, err
}

// conn returns a connection with room for a request, and makes one if there is none.
func (t *Transport) conn(ctx context.Context) (*conn, error) {
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
		err := t.wait(ctx, d)
		if err != nil {
			return nil, err
		}
	}
}

// wait waits for a connection in the making. When nobody does any more, it is not made.
func (t *Transport) wait(ctx context.Context, d *dialing) error {
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

// dial begins to make a connection. The lock is held.
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
	if err := c.greet(); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("greet the server: %w", err)
	}
	go c.read()
	return c, nil
}

// forget drops a connection that takes no further requests.
func (t *Transport) forget(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = slices.DeleteFunc(t.conns, func(other *conn) bool { return other == c })
}

// CloseIdleConnections ends the connections on which nothing is asked.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	conns := slices.Clone(t.conns)
	t.mu.Unlock()
	for _, c := range conns {
		c.retire()
	}
}
