package run

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// UnidentifiedLimiter limits the number of served connections whose client has not been identified. Otherwise anybody
// who reaches the port could make a daemon use memory. At the limit, an accepted connection waits until another is
// identified or ends. The connection that has been silent longest is closed once its Grace has passed.
//
// Clients with credentials are identified by their first request, within milliseconds, and do not count after that. If
// many arrive at once, for example after a restart, they are served in turn, and none is cut off in its handshake.
type UnidentifiedLimiter struct {
	Limit int // maximum number of served connections; zero means 1000. Twice as many may wait
	// Grace is how long a connection may send nothing before another may replace it. One that sends something may be
	// replaced after three times as long. If too many wait, it is replaced earlier. Zero means two seconds.
	Grace time.Duration

	mu      sync.Mutex
	changed sync.Cond // signals changes of the fields below; its lock is mu
	conns   list.List // served connections as *UnidentifiedConn, the oldest first
}

// UnidentifiedConn is a connection that counts until its client is identified.
type UnidentifiedConn struct {
	net.Conn
	limiter     *UnidentifiedLimiter
	once        sync.Once
	identified  chan struct{} // closed once the client is identified
	servedSince time.Time     // when serving started
	receivedAt  atomic.Int64  // when data arrived last, in nanoseconds after servedSince
	element     *list.Element // guarded by limiter.mu; nil if it does not count
}

// Read implements net.Conn.
func (v *UnidentifiedConn) Read(p []byte) (int, error) {
	n, err := v.Conn.Read(p)
	select {
	case <-v.identified:
	default:
		if n > 0 {
			v.receivedAt.Store(int64(time.Since(v.servedSince)))
		}
	}
	return n, err
}

// replaceableAt returns when another connection may replace the connection.
func (v *UnidentifiedConn) replaceableAt(grace time.Duration) time.Time {
	return v.servedSince.Add(min(time.Duration(v.receivedAt.Load())+grace, 3*grace))
}

// Identify records that the client is identified. A nil UnidentifiedConn is a connection that is not counted.
func (v *UnidentifiedConn) Identify() {
	if v != nil {
		v.once.Do(func() {
			close(v.identified)
			v.limiter.lockAndRemove(v)
		})
	}
}

// Identified returns a channel that is closed once the client has been identified.
func (v *UnidentifiedConn) Identified() <-chan struct{} {
	if v == nil {
		return alwaysIdentified
	}
	return v.identified
}

// alwaysIdentified is a closed channel for connections that are not counted: they are treated as identified.
var alwaysIdentified = func() chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// Listen returns a listener that counts the connections of ln. It accepts until ln is closed.
func (u *UnidentifiedLimiter) Listen(ln net.Listener) net.Listener {
	u.changed.L = &u.mu
	l := &countingListener{Listener: ln, limiter: u}
	go l.acceptLoop()
	return l
}

type countingListener struct {
	net.Listener
	limiter *UnidentifiedLimiter

	waiting list.List // of net.Conn, the oldest first; guarded by limiter.mu, like failed
	failed  error     // the last error of accepting, until it is returned
}

// acceptLoop accepts connections as they arrive, so that waiting ones are counted.
func (l *countingListener) acceptLoop() {
	u := l.limiter
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
func (l *countingListener) Accept() (net.Conn, error) {
	u := l.limiter
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
		if left := u.untilSlotFree(l.waiting.Len() > 2*u.limit()); left > 0 {
			wake := time.AfterFunc(left, u.changed.Broadcast)
			u.changed.Wait()
			wake.Stop()
			continue
		}
		v := &UnidentifiedConn{
			Conn:        l.waiting.Remove(l.waiting.Front()).(net.Conn),
			limiter:     u,
			servedSince: time.Now(),
			identified:  make(chan struct{}),
		}
		v.element = u.conns.PushBack(v)
		u.changed.Broadcast()
		return v, nil
	}
}

func (u *UnidentifiedLimiter) limit() int {
	if u.Limit == 0 {
		return 1000
	}
	return u.Limit
}

// untilSlotFree returns how long to wait until a connection can be served. At the limit it closes the connection that
// may be replaced first if its time has come or if atOnce is set, and returns 0. The caller holds u.mu.
func (u *UnidentifiedLimiter) untilSlotFree(atOnce bool) time.Duration {
	if u.conns.Len() < u.limit() {
		return 0
	}
	grace := u.Grace
	if grace == 0 {
		grace = 2 * time.Second
	}
	var first *UnidentifiedConn
	var firstAt time.Time
	for e := u.conns.Front(); e != nil; e = e.Next() {
		v := e.Value.(*UnidentifiedConn)
		if at := v.replaceableAt(grace); first == nil || at.Before(firstAt) {
			first, firstAt = v, at
		}
	}
	if left := time.Until(firstAt); left > 0 && !atOnce {
		return left
	}
	u.remove(first)
	_ = first.Conn.Close() // its server notices
	return 0
}

// remove stops counting a connection. The caller holds u.mu.
func (u *UnidentifiedLimiter) remove(v *UnidentifiedConn) {
	if v.element != nil {
		u.conns.Remove(v.element)
		v.element = nil
		u.changed.Broadcast()
	}
}

// lockAndRemove is remove with locking.
func (u *UnidentifiedLimiter) lockAndRemove(v *UnidentifiedConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remove(v)
}

// Close implements net.Conn.
func (v *UnidentifiedConn) Close() error {
	v.limiter.lockAndRemove(v)
	return v.Conn.Close()
}

// NetConn returns the underlying connection, as tls.Conn does.
func (v *UnidentifiedConn) NetConn() net.Conn { return v.Conn }

type connKey struct{}

// connContext is for http.Server. It stores the UnidentifiedConn of a connection in the context of its requests.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	for {
		switch c := conn.(type) {
		case *UnidentifiedConn:
			return context.WithValue(ctx, connKey{}, c)
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return ctx
		}
	}
}

// ConnOf returns the connection of a request, by the request's context. It returns nil if the connection is not
// counted.
func ConnOf(ctx context.Context) *UnidentifiedConn {
	v, _ := ctx.Value(connKey{}).(*UnidentifiedConn)
	return v
}
