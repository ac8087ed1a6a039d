package run

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Unidentified limits the number of served connections whose client has not been identified. Otherwise anybody who
// reaches the port could make a daemon use memory. At the limit, an accepted connection waits until another is
// identified or ends. The connection that has been served longest is closed once its Grace has passed.
//
// Clients with credentials are identified by their first request, within milliseconds, and do not count after that. If
// many arrive at once, for example after a restart, they are served in turn.
type Unidentified struct {
	Limit int // maximum number of served connections; zero means 1000. Twice as many may wait
	// Grace is how long a connection is served before another may replace it. If too many wait, it is replaced earlier.
	// Zero means two seconds.
	Grace time.Duration

	mu      sync.Mutex
	changed sync.Cond // signals changes of the fields below; its lock is mu
	conns   list.List // served connections as *Visitor, the oldest first
}

// Visitor is a connection that counts until its client is identified.
type Visitor struct {
	net.Conn
	all   *Unidentified
	once  sync.Once
	known chan struct{} // closed once the client is identified
	since time.Time     // when serving started
	place *list.Element // guarded by all.mu; nil if it does not count
}

// Identify records that the client is identified. A nil Visitor is a connection that is not counted.
func (v *Visitor) Identify() {
	if v != nil {
		v.once.Do(func() {
			close(v.known)
			v.all.forget(v)
		})
	}
}

// Known returns a channel that is closed once the client has been identified.
func (v *Visitor) Known() <-chan struct{} {
	if v == nil {
		return nobody
	}
	return v.known
}

// nobody is a closed channel for connections that are not counted: they are treated as identified.
var nobody = func() chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// Listen returns a listener that counts the connections of ln. It accepts until ln is closed.
func (u *Unidentified) Listen(ln net.Listener) net.Listener {
	u.changed.L = &u.mu
	l := &counted{Listener: ln, all: u}
	go l.fetch()
	return l
}

type counted struct {
	net.Listener
	all *Unidentified

	waiting list.List // of net.Conn, the oldest first; guarded by all.mu, like failed
	failed  error     // the last error of accepting, until it is returned
}

// fetch accepts connections as they arrive, so that waiting ones are counted.
func (l *counted) fetch() {
	u := l.all
	for {
		conn, err := l.Listener.Accept()
		u.mu.Lock()
		if err != nil {
			l.failed = err
		} else {
			l.waiting.PushBack(conn)
		}
		u.changed.Broadcast()
		for l.failed != nil && !errors.Is(err, net.ErrClosed) || l.waiting.Len() > 2*u.limit() {
			u.changed.Wait()
		}
		u.mu.Unlock()
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Accept implements net.Listener.
func (l *counted) Accept() (net.Conn, error) {
	u := l.all
	u.mu.Lock()
	defer u.mu.Unlock()
	for {
		if err := l.failed; err != nil {
			if errors.Is(err, net.ErrClosed) {
				for ; l.waiting.Len() > 0; l.waiting.Remove(l.waiting.Front()) {
					_ = l.waiting.Front().Value.(net.Conn).Close() // it will not be served
				}
			} else {
				l.failed = nil
			}
			u.changed.Broadcast()
			return nil, err
		}
		if l.waiting.Len() == 0 {
			u.changed.Wait()
			continue
		}
		if left := u.fullFor(l.waiting.Len() > 2*u.limit()); left > 0 {
			wake := time.AfterFunc(left, u.changed.Broadcast)
			u.changed.Wait()
			wake.Stop()
			continue
		}
		v := &Visitor{
			Conn:  l.waiting.Remove(l.waiting.Front()).(net.Conn),
			all:   u,
			since: time.Now(),
			known: make(chan struct{}),
		}
		v.place = u.conns.PushBack(v)
		u.changed.Broadcast()
		return v, nil
	}
}

func (u *Unidentified) limit() int {
	if u.Limit == 0 {
		return 1000
	}
	return u.Limit
}

// fullFor returns how long to wait until a connection can be served. At the limit it closes the oldest connection if
// its grace has passed or if atOnce is set, and returns 0. The caller holds u.mu.
func (u *Unidentified) fullFor(atOnce bool) time.Duration {
	if u.conns.Len() < u.limit() {
		return 0
	}
	oldest, grace := u.conns.Front().Value.(*Visitor), u.Grace
	if grace == 0 {
		grace = 2 * time.Second
	}
	if left := grace - time.Since(oldest.since); left > 0 && !atOnce {
		return left
	}
	u.drop(oldest)
	_ = oldest.Conn.Close() // its server notices
	return 0
}

// drop stops counting a connection. The caller holds u.mu.
func (u *Unidentified) drop(v *Visitor) {
	if v.place != nil {
		u.conns.Remove(v.place)
		v.place = nil
		u.changed.Broadcast()
	}
}

// forget is drop with locking.
func (u *Unidentified) forget(v *Visitor) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(v)
}

// Close implements net.Conn.
func (v *Visitor) Close() error {
	v.all.forget(v)
	return v.Conn.Close()
}

// NetConn returns the underlying connection, as tls.Conn does.
func (v *Visitor) NetConn() net.Conn { return v.Conn }

type visitorKey struct{}

// connContext is for http.Server. It stores the Visitor of a connection in the context of its requests.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	for {
		switch c := conn.(type) {
		case *Visitor:
			return context.WithValue(ctx, visitorKey{}, c)
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return ctx
		}
	}
}

// VisitorOf returns the connection of a request, by the request's context. It returns nil if the connection is not
// counted.
func VisitorOf(ctx context.Context) *Visitor {
	v, _ := ctx.Value(visitorKey{}).(*Visitor)
	return v
}
