package proxy

import (
	"net/netip"
	"sync/atomic"
)

// clientCounts counts the connections and requests of one client.
type clientCounts struct {
	network netip.Addr
	conns   int          // guarded by the engine's mu
	calls   atomic.Int64 // requests that are being forwarded
}

// clientNetwork returns the key of a client: its IPv4 address, or its IPv6 /64 network, because one host usually has a
// whole /64 network.
func clientNetwork(a netip.Addr) netip.Addr {
	if a.Is6() && !a.Is4In6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a.Unmap()
}

// limits are the limits of connections and requests. They keep the process within its file descriptors.
type limits struct {
	conns          int   // client connections; 0: no limit
	connsPerClient int   // connections per client, once half of conns are in use; 0: no limit
	calls          int64 // forwarded requests, each with a backend connection; 0: no limit
	callsPerClient int64 // forwarded requests per client, once half of calls are in use
	idle           int64 // idle backend connections; 0: no limit
}

const (
	// callsPerConn is the number of requests per allowed connection, because an HTTP/2 connection carries many.
	callsPerConn = 4
	// spareDescriptors are reserved for listeners, API watches and files.
	spareDescriptors = 1024
)

// limitsOf returns the limits of a configuration.
func limitsOf(cfg *Config) limits {
	l := limits{conns: cfg.MaxConns, calls: int64(cfg.MaxConns) * callsPerConn}
	if n := cfg.Descriptors; n > 0 {
		free := n - min(spareDescriptors, n/4)
		if l.conns == 0 || l.conns > free/3 {
			l.conns = max(free/3, 1)
			l.calls = int64(l.conns) * callsPerConn
		}
		rest := int64(free - l.conns)
		l.calls = min(l.calls, rest*3/4)
		l.idle = max(rest-l.calls, 1)
	}
	if cfg.ClientShare > 0 && cfg.ClientShare < 100 {
		l.connsPerClient = max(l.conns*cfg.ClientShare/100, 1)
		l.callsPerClient = max(l.calls*int64(cfg.ClientShare)/100, 1)
	}
	return l
}

// canOpen reports whether a client may open one more connection. Once half of all connections are in use, a client at
// its share must give up idle connections, or is refused. The caller holds mu.
func (e *Engine) canOpen(of *clientCounts) bool {
	if of == nil || e.limits.connsPerClient == 0 || e.limits.conns == 0 ||
		len(e.conns)-e.evicted < (e.limits.conns+1)/2 ||
		of.conns < e.limits.connsPerClient {
		return true
	}
	if e.makeRoom(of) > 0 {
		return true
	}
	e.counters.refusedConns.Add(1)
	return false
}

// countClient adds a connection to its client's count. It returns false if the client has reached its limit.
func (e *Engine) countClient(c *conn, of netip.Addr) bool {
	if e.limits.connsPerClient == 0 {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := clientNetwork(of)
	u := e.clients[key]
	if u == nil {
		u = &clientCounts{network: key}
	}
	if !e.canOpen(u) {
		return false
	}
	e.clients[key] = u
	u.conns++
	c.counts = u
	return true
}

// uncountClient reverses countClient. The caller holds mu.
func (e *Engine) uncountClient(c *conn) {
	if c.counts == nil {
		return
	}
	if c.counts.conns--; c.counts.conns == 0 && e.clients[c.counts.network] == c.counts {
		delete(e.clients, c.counts.network)
	}
}

var (
	errTooManyCalls       = &statusError{503, "too many requests are being forwarded"}
	errTooManyClientCalls = &statusError{429, "too many requests of this client are being forwarded"}
)

// startCall counts a request that is forwarded to a backend. It returns the error response if a limit is exceeded,
// otherwise nil. After nil, the caller must call endCall when the request ends.
func (e *Engine) startCall(c *conn) *statusError {
	if e.limits.calls == 0 {
		return nil
	}
	all, own := e.activeCalls.Add(1), int64(0)
	if c.counts != nil {
		own = c.counts.calls.Add(1)
	}
	switch {
	case all > e.limits.calls:
		e.endCall(c)
		e.counters.refusedCalls.Add(1)
		return errTooManyCalls
	case c.counts != nil && all > e.limits.calls/2 && own > e.limits.callsPerClient:
		e.endCall(c)
		e.counters.refusedCalls.Add(1)
		return errTooManyClientCalls
	}
	return nil
}

func (e *Engine) endCall(c *conn) {
	if e.limits.calls == 0 {
		return
	}
	e.activeCalls.Add(-1)
	if c.counts != nil {
		c.counts.calls.Add(-1)
	}
}

// reserveIdle reports whether one more backend connection may become idle, and counts it.
func (e *Engine) reserveIdle() bool {
	if n := e.idleUpstreams.Add(1); e.limits.idle > 0 && n > e.limits.idle {
		e.idleUpstreams.Add(-1)
		return false
	}
	return true
}
