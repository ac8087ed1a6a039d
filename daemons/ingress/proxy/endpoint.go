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
	pool         *pool
	addr         netip.AddrPort
	addrText     string
	active       atomic.Int64
	ejectedUntil atomic.Int64 // not used before this time, by the engine's clock
	failures     atomic.Int32 // consecutive failures

	mu      sync.Mutex
	idle    []*upstream // the most recently used last
	retired bool
}

// upstream is a connection to an endpoint.
type upstream struct {
	endpoint      *endpoint
	nc            net.Conn
	tcp           *net.TCPConn // nil with TLS
	raw           *net.TCPConn // also set with TLS
	buf           *buffer
	idleSince     int64 // when it became idle
	reused        bool
	readDeadline  deadline
	writeDeadline deadline
}

// takeIdle returns an idle connection, or nil. With certain, it skips connections that the endpoint has closed, for
// requests that cannot be repeated.
func (e *endpoint) takeIdle(certain bool) *upstream {
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
		e.pool.e.idleUpstreams.Add(-1)
		if certain && !u.isOpen() {
			_ = u.nc.Close()
			continue
		}
		u.reused = true
		u.buf = getBuffer(upstreamBuffer)
		return u
	}
}

// isOpen reports whether an idle connection is still open and has no unexpected data.
func (u *upstream) isOpen() bool { return peek(u.raw) == peekNothing }

// putIdle keeps a connection for the next request.
func (e *endpoint) putIdle(u *upstream) {
	u.buf.free()
	u.buf = nil
	u.idleSince = e.pool.e.clock()
	e.mu.Lock()
	if e.retired || len(e.idle) >= e.pool.e.cfg.MaxIdle || !e.pool.e.reserveIdle() {
		e.mu.Unlock()
		_ = u.nc.Close()
		return
	}
	e.idle = append(e.idle, u)
	first := len(e.idle) == 1
	e.mu.Unlock()
	if first {
		e.pool.e.janitor.add(e)
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
	nc, err := d.DialContext(ctx, "tcp", e.addrText)
	if err != nil {
		e.eject()
		return nil, err
	}
	e.failures.Store(0)
	e.ejectedUntil.Store(0)
	u := &upstream{endpoint: e, nc: nc}
	u.raw, _ = nc.(*net.TCPConn)
	u.tcp = u.raw
	if e.pool.tls != nil {
		secure := tls.Client(nc, e.pool.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			e.eject()
			return nil, err
		}
		u.nc, u.tcp = secure, nil
	}
	u.buf = getBuffer(upstreamBuffer)
	return u, nil
}

// eject takes the endpoint out of use for a while.
func (e *endpoint) eject() {
	n := e.failures.Add(1)
	wait := maxEject
	if n < 6 {
		wait = min(minEject<<(n-1), maxEject)
	}
	e.ejectedUntil.Store(e.pool.e.clock() + int64(wait))
}

// retire closes the idle connections. Connections in use are closed when they are put back.
func (e *endpoint) retire() {
	e.mu.Lock()
	idle := e.idle
	e.retired, e.idle = true, nil
	e.mu.Unlock()
	e.pool.e.idleUpstreams.Add(-int64(len(idle)))
	for _, u := range idle {
		_ = u.nc.Close()
	}
}

// closeIdleSince closes the connections that have been idle since before a time. It reports whether idle connections
// remain.
func (e *endpoint) closeIdleSince(before int64) bool {
	e.mu.Lock()
	n := 0
	for n < len(e.idle) && e.idle[n].idleSince < before {
		n++
	}
	old := append([]*upstream(nil), e.idle[:n]...)
	e.idle = append(e.idle[:0], e.idle[n:]...)
	clear(e.idle[len(e.idle):cap(e.idle)])
	left := len(e.idle) > 0
	e.mu.Unlock()
	e.pool.e.idleUpstreams.Add(-int64(len(old)))
	for _, u := range old {
		_ = u.nc.Close()
	}
	return left
}

// janitor closes connections that have been idle for too long. It does nothing while there are none.
type janitor struct {
	engine    *Engine
	mu        sync.Mutex
	endpoints map[*endpoint]struct{}
}

func (j *janitor) add(e *endpoint) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.endpoints == nil {
		j.endpoints = map[*endpoint]struct{}{}
	}
	j.endpoints[e] = struct{}{}
	if len(j.endpoints) == 1 {
		time.AfterFunc(j.engine.cfg.UpstreamIdle/4, j.sweep)
	}
}

func (j *janitor) sweep() {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.engine.clock() - int64(j.engine.cfg.UpstreamIdle)
	for e := range j.endpoints {
		if !e.closeIdleSince(before) {
			delete(j.endpoints, e)
		}
	}
	if len(j.endpoints) > 0 {
		time.AfterFunc(j.engine.cfg.UpstreamIdle/4, j.sweep)
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
