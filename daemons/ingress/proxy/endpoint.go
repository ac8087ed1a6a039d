package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// endpoint is one address of a backend, with its idle connections.
type endpoint struct {
	pool     *pool
	addr     netip.AddrPort
	text     string
	active   atomic.Int64
	ejected  atomic.Int64 // not used before this time, by the engine's clock
	failures atomic.Int32 // consecutive failures

	mu   sync.Mutex
	idle []*upstream // the most recently used last
	gone bool
}

// upstream is a connection to an endpoint.
type upstream struct {
	of      *endpoint
	nc      net.Conn
	tcp     *net.TCPConn // nil with TLS
	raw     *net.TCPConn // also set with TLS
	buf     *buffer
	since   int64 // when it became idle
	reused  bool
	reading deadline
	writing deadline
}

// take returns an idle connection, or nil. With certain, it skips connections that the endpoint has closed, for
// requests that cannot be repeated.
func (e *endpoint) take(certain bool) *upstream {
	for {
		e.mu.Lock()
		n := len(e.idle)
		if n == 0 {
			e.mu.Unlock()
			return nil
		}
		u := e.idle[n-1]
		e.idle[n-1] = nil
		e.idle = e.idle[:n-1]
		e.mu.Unlock()
		e.pool.e.idle.Add(-1)
		if certain && !u.open() {
			_ = u.nc.Close()
			continue
		}
		u.reused = true
		u.buf = getBuffer(upstreamBuffer)
		return u
	}
}

// open reports whether an idle connection is still open and has no unexpected data.
func (u *upstream) open() bool { return peek(u.raw) == peekNothing }

// put keeps a connection for the next request.
func (e *endpoint) put(u *upstream) {
	u.buf.free()
	u.buf = nil
	u.since = e.pool.e.clock()
	e.mu.Lock()
	if e.gone || len(e.idle) >= e.pool.e.cfg.MaxIdle || !e.pool.e.mayIdle() {
		e.mu.Unlock()
		_ = u.nc.Close()
		return
	}
	e.idle = append(e.idle, u)
	first := len(e.idle) == 1
	e.mu.Unlock()
	if first {
		e.pool.e.janitor.watch(e)
	}
}

// close closes a connection that cannot be reused.
func (u *upstream) close() {
	if u.buf != nil {
		u.buf.free()
		u.buf = nil
	}
	_ = u.nc.Close()
}

// dial opens a new connection.
func (e *endpoint) dial(timeout time.Duration) (*upstream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", e.text)
	if err != nil {
		e.refused()
		return nil, err
	}
	e.failures.Store(0)
	e.ejected.Store(0)
	u := &upstream{of: e, nc: nc}
	u.raw, _ = nc.(*net.TCPConn)
	u.tcp = u.raw
	if e.pool.tls != nil {
		secure := tls.Client(nc, e.pool.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			e.refused()
			return nil, err
		}
		u.nc, u.tcp = secure, nil
	}
	u.buf = getBuffer(upstreamBuffer)
	return u, nil
}

// refused takes the endpoint out of use for a while.
func (e *endpoint) refused() {
	n := e.failures.Add(1)
	wait := lastEject
	if n < 6 {
		wait = min(firstEject<<(n-1), lastEject)
	}
	e.ejected.Store(e.pool.e.clock() + int64(wait))
}

// retire closes the idle connections. Connections in use are closed when they are put back.
func (e *endpoint) retire() {
	e.mu.Lock()
	idle := e.idle
	e.gone, e.idle = true, nil
	e.mu.Unlock()
	e.pool.e.idle.Add(-int64(len(idle)))
	for _, u := range idle {
		_ = u.nc.Close()
	}
}

// expire closes the connections that have been idle since before a time. It reports whether idle connections remain.
func (e *endpoint) expire(before int64) bool {
	e.mu.Lock()
	n := 0
	for n < len(e.idle) && e.idle[n].since < before {
		n++
	}
	old := append([]*upstream(nil), e.idle[:n]...)
	e.idle = append(e.idle[:0], e.idle[n:]...)
	clear(e.idle[len(e.idle):cap(e.idle)])
	left := len(e.idle) > 0
	e.mu.Unlock()
	e.pool.e.idle.Add(-int64(len(old)))
	for _, u := range old {
		_ = u.nc.Close()
	}
	return left
}

// janitor closes connections that have been idle for too long. It does nothing while there are none.
type janitor struct {
	engine *Engine
	mu     sync.Mutex
	all    map[*endpoint]struct{}
}

func (j *janitor) watch(e *endpoint) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.all == nil {
		j.all = map[*endpoint]struct{}{}
	}
	j.all[e] = struct{}{}
	if len(j.all) == 1 {
		time.AfterFunc(j.engine.cfg.UpIdle/4, j.sweep)
	}
}

func (j *janitor) sweep() {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.engine.clock() - int64(j.engine.cfg.UpIdle)
	for e := range j.all {
		if !e.expire(before) {
			delete(j.all, e)
		}
	}
	if len(j.all) > 0 {
		time.AfterFunc(j.engine.cfg.UpIdle/4, j.sweep)
	}
}

// These are the results of peek, which checks a connection without reading.
const (
	peekNothing = iota // open, without data
	peekData
	peekClosed
)

func peek(c *net.TCPConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return peekClosed
	}
	seen := peekClosed
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN:
			seen = peekNothing
		case err == nil && n > 0:
			seen = peekData
		}
	})
	if err != nil {
		return peekClosed
	}
	return seen
}
