package run

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// Unidentified bounds how many connections are open on which nobody has been identified: what they cost is memory that
// anybody who reaches the port could have a daemon spend. When one more is accepted than there may be, the one that has been
// open longest without an identified client is closed. Clients with credentials are identified by their first request, within
// milliseconds, and are not counted after that.
type Unidentified struct {
	Limit int // of connections; zero means 1000

	mu    sync.Mutex
	conns list.List // of *visitor, oldest first
}

// Visitor is a connection that is counted until its client has been identified.
type Visitor struct {
	net.Conn
	all   *Unidentified
	once  sync.Once
	known chan struct{} // closed once the client is identified
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

// Listen returns ln with its connections counted.
func (u *Unidentified) Listen(ln net.Listener) net.Listener { return &counted{Listener: ln, all: u} }

type counted struct {
	net.Listener
	all *Unidentified
}

// Accept implements net.Listener.
func (l *counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.all.admit(conn), nil
}

func (u *Unidentified) admit(conn net.Conn) *Visitor {
	v := &Visitor{Conn: conn, all: u, known: make(chan struct{})}
	limit := u.Limit
	if limit == 0 {
		limit = 1000
	}
	u.mu.Lock()
	v.place = u.conns.PushBack(v)
	var oldest *Visitor
	if u.conns.Len() > limit {
		oldest = u.conns.Front().Value.(*Visitor)
		u.drop(oldest)
	}
	u.mu.Unlock()
	if oldest != nil {
		_ = oldest.Conn.Close() // its server finds out
	}
	return v
}

// drop counts a connection no more. The lock is held.
func (u *Unidentified) drop(v *Visitor) {
	if v.place != nil {
		u.conns.Remove(v.place)
		v.place = nil
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
