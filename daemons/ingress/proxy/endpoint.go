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

// endpoint is one address of a backend, with the connections to it that nobody uses at the moment.
type endpoint struct {
	pool     *pool
	addr     netip.AddrPort
	text     string
	active   atomic.Int64
	ejected  atomic.Int64 // until then, by the engine's clock
	failures atomic.Int32 // in a row

	mu   sync.Mutex
	idle []*upstream // the one used last at the end
	gone bool
}

// upstream is a connection to an endpoint.
type upstream struct {
	of      *endpoint
	nc      net.Conn
	tcp     *net.TCPConn // nil over TLS
	raw     *net.TCPConn // also below TLS
	buf     *buffer
	since   int64 // when it was last put aside
	reused  bool
	reading deadline
	writing deadline
}

// take returns a connection that was put aside, or nil. With certain, it is looked at first whether the endpoint has
// closed it: a request that cannot be sent twice must not meet a connection that is already closed.
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

// open reports whether the other end has neither closed an idle connection nor sent something nobody asked for.
func (u *upstream) open() bool { return peek(u.raw) == peekNothing }

// put sets a connection aside for the next request.
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

// close ends a connection that cannot be used again.
func (u *upstream) close() {
	if u.buf != nil {
		u.buf.free()
		u.buf = nil
	}
	_ = u.nc.Close()
}

// dial makes a new connection.
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

// refused leaves the endpoint out for a moment.
func (e *endpoint) refused() {
	n := e.failures.Add(1)
	wait := lastEject
	if n < 6 {
		wait = min(firstEject<<(n-1), lastEject)
	}
	e.ejected.Store(e.pool.e.clock() + int64(wait))
}

// retire closes what is idle. What is in use is closed when it is put back.
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

// expire closes the connections that were put aside before a time, and returns whether some are left.
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

// janitor closes connections that were not used for a while. It does nothing while there are none.
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

// What a look at a connection shows without reading from it.
const (
	peekNothing = iota // it is open, and nothing has come
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
