package run

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Unidentified bounds how many connections are served on which nobody has been identified: what they cost is memory
// that anybody who reaches the port could have a daemon spend. When there are as many as there may be, one that is
// accepted waits until one of them is identified or ends, or the one that has been served longest has had its time and
// is closed for it. Clients with credentials are identified by their first request, within milliseconds, and are not
// counted after that: many that come at once, as after a restart, are served in turn.
type Unidentified struct {
	Limit int // of connections that are served; zero means 1000. Twice as many wait
	// for which a connection is served before another gets its place, unless more wait than may; zero means two seconds
	Grace time.Duration

	mu      sync.Mutex
	changed sync.Cond // of what follows; its lock is mu
	conns   list.List // of *Visitor that are served, oldest first
}

// Visitor is a connection that is counted until its client has been identified.
type Visitor struct {
	net.Conn
	all   *Unidentified
	once  sync.Once
	known chan struct{} // closed once the client is identified
	since time.Time     // when it began to be served
	place *list.Element // guarded by all.mu; nil when it is not counted
}

// Identify says that the client has shown who it is. A nil Visitor is a connection that nobody counts.
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

// nobody is the channel of connections that nobody counts: they are treated as identified.
var nobody = func() chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// Listen returns ln with its connections counted. It accepts until ln is closed.
func (u *Unidentified) Listen(ln net.Listener) net.Listener {
	u.changed.L = &u.mu
	l := &counted{Listener: ln, all: u}
	go l.fetch()
	return l
}

type counted struct {
	net.Listener
	all *Unidentified

	waiting list.List // of net.Conn, oldest first; guarded by all.mu, as what follows
	failed  error     // what accepting has last returned, until it is told
}

// fetch accepts connections as they come, so that those that wait can be counted.
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
					_ = l.waiting.Front().Value.(net.Conn).Close() // nobody serves it
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

// fullFor returns how long there is no place, and makes one when it is none: where there are as many connections as may
// be served, the oldest is closed when it has had its time, or at once. The lock is held.
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
	_ = oldest.Conn.Close() // its server finds out
	return 0
}

// drop counts a connection no more. The lock is held.
func (u *Unidentified) drop(v *Visitor) {
	if v.place != nil {
		u.conns.Remove(v.place)
		v.place = nil
		u.changed.Broadcast()
	}
}

// forget is drop with the lock taken.
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

// NetConn returns the connection below, as tls.Conn does.
func (v *Visitor) NetConn() net.Conn { return v.Conn }

type visitorKey struct{}

// connContext is for http.Server: it has the requests of a connection know which one that is.
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

// VisitorOf returns the connection that a request came on, by its context; nil if nobody counts it.
func VisitorOf(ctx context.Context) *Visitor {
	v, _ := ctx.Value(visitorKey{}).(*Visitor)
	return v
}
