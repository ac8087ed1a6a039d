// Package proxy passes requests on: HTTP/1.1 and HTTP/2 in, over TCP or TLS, and HTTP/1.1, HTTP/2 and upgraded
// connections out, by the table of package route. HTTP/1 is an engine of its own over plain buffers, since one proxy
// stands before everything; HTTP/2 is the standard library's on both sides.
//
// Where the table comes from, which sockets are listened on and who the certificates are from is for others.
package proxy

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Config says how requests are passed on. Every field but the optional ones must be set.
type Config struct {
	Log         *slog.Logger
	Default     *tls.Certificate // shown to clients that ask for a name nobody has a certificate for
	AccessLog   io.Writer        // nil: requests are not logged
	Trusted     []netip.Prefix   // whose X-Forwarded and Forwarded fields are believed
	ProxyFrom   []netip.Prefix   // whose connections begin with the PROXY protocol
	LeastConns  bool             // the endpoint with the fewest requests is next, not the one whose turn it is
	MaxHead     int              // bytes
	HeadTime    time.Duration    // for a head to come, from its first byte
	Idle        time.Duration    // for the next request to come
	UpIdle      time.Duration    // for a backend's connection to be used again
	MaxIdle     int              // connections kept for each endpoint
	HTTPSPort   int              // that redirects name; 443 is not written
	MinTLS      uint16
	MaxStreams  int // of one HTTP/2 connection
	MaxConns    int // connections of clients at a time, of all listeners; 0: any number
	ClientShare int // percent of MaxConns that one client may have once half of them are there; 0 or 100: any number
	Descriptors int // how many files and sockets the process may have open; 0: any number
	HandshakeIn time.Duration
	// for a client of HTTP/2 to take a part of an answer, or a byte of what its connection has for it; 0: a minute
	WriteTime time.Duration
}

// Engine serves listeners.
type Engine struct {
	cfg      Config
	started  time.Time
	h2       *http.Server
	h2conns  *handed
	log      *accessLog
	counters counters
	janitor  janitor

	draining atomic.Bool
	closing  atomic.Bool
	mu       sync.Mutex
	conns    map[*conn]struct{}
	clients  map[netip.Addr]*client // who has connections, where each has a share
	leaving  int                    // of conns, those that were closed to make room
	last     bool                   // nobody waits for room any more
	room     sync.Cond              // somebody has left, or begun to wait for a request
	wanting  atomic.Int64           // who waits for room
	tunnels  map[net.Conn]struct{}
	wg       sync.WaitGroup
	old, now atomic.Int64 // requests that began before the drain, and since
	limits   limits
	calls    atomic.Int64 // requests that are being passed on
	idle     atomic.Int64 // connections to backends that wait for a request
}

// New returns an Engine with an empty table.
func New(cfg Config) *Engine {
	if cfg.WriteTime == 0 {
		cfg.WriteTime = writeTime
	}
	e := &Engine{
		cfg:     cfg,
		started: time.Now(),
		conns:   map[*conn]struct{}{},
		clients: map[netip.Addr]*client{},
		tunnels: map[net.Conn]struct{}{},
	}
	e.limits = limitsOf(&cfg)
	if e.limits.conns < cfg.MaxConns {
		cfg.Log.Warn("fewer connections of clients than configured: the process may not have enough files open",
			"connections", e.limits.conns, "configured", cfg.MaxConns, "files", cfg.Descriptors)
	}
	e.janitor.engine = e
	e.room.L = &e.mu
	if cfg.AccessLog != nil {
		e.log = newAccessLog(cfg.AccessLog)
	}
	e.startHTTP2()
	return e
}

// clock is the time since the engine was made, in nanoseconds: it never goes back.
func (e *Engine) clock() int64 { return int64(time.Since(e.started)) }

// at is a moment of the clock as deadlines are set.
func (e *Engine) at(clock int64) time.Time { return e.started.Add(time.Duration(clock)) }

// Serve accepts connections of an entry until the listener is closed. Each listener has at most one accepted connection
// that is not counted yet. If the limit is reached, further connections wait in the socket's backlog.
func (e *Engine) Serve(ln net.Listener, at *Entry) error {
	wait := time.Millisecond
	for {
		nc, err := ln.Accept()
		if err != nil {
			if temporary(err) {
				// Out of file descriptors: connections that end give some back.
				e.cfg.Log.Warn("accept a connection", "err", err)
				time.Sleep(wait)
				wait = min(2*wait, time.Second)
				continue
			}
			return err
		}
		wait = time.Millisecond
		e.counters.accepted.Add(1)
		c := &conn{e: e, entry: at, nc: nc, under: nc, port: at.port, secure: at.secure}
		c.tcp, _ = nc.(*net.TCPConn)
		peer, _ := netip.ParseAddrPort(nc.RemoteAddr().String())
		c.client = peer.Addr().Unmap()
		// Proxies before this one speak for many clients.
		if !contains(e.cfg.Trusted, c.client) && !contains(e.cfg.ProxyFrom, c.client) && !e.join(c, c.client) {
			_ = nc.Close()
			continue
		}
		e.enter(c)
		e.wg.Go(func() {
			c.serve()
			if !c.handed {
				e.leave(c)
			}
		})
	}
}
