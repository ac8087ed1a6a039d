// Package proxy is a reverse proxy. It accepts HTTP/1.1 and HTTP/2 over TCP or TLS, and forwards over HTTP/1.1 and
// HTTP/2, including upgraded connections, according to the table of package route. HTTP/1 is implemented here on plain
// buffers, for efficiency. HTTP/2 uses the standard library on both sides.
//
// The caller provides the tables, the listeners and the certificates.
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

// Config configures an Engine. All fields are required unless their comment defines a default.
type Config struct {
	Log           *slog.Logger
	DefaultCert   *tls.Certificate // for names without a certificate
	AccessLog     io.Writer        // nil disables the access log
	Trusted       []netip.Prefix   // networks whose X-Forwarded and Forwarded fields are trusted
	ProxyFrom     []netip.Prefix   // networks whose connections start with the PROXY protocol
	LeastConns    bool             // select the endpoint with the fewest requests instead of in turn
	MaxHead       int              // bytes
	HeadTime      time.Duration    // limit for a head to arrive, from its first byte
	Idle          time.Duration    // limit of waiting for the next request
	UpstreamIdle  time.Duration    // limit of keeping an idle connection to a backend
	MaxIdle       int              // idle connections per endpoint
	HTTPSPort     int              // port for redirects to HTTPS; 443 is omitted from the URL
	MinTLS        uint16
	MaxStreams    int // per HTTP/2 connection
	MaxConns      int // concurrent client connections of all listeners; 0: no limit
	ClientShare   int // percentage of MaxConns per client, once half of them are in use; 0 or 100: no limit
	Descriptors   int // file descriptors of the process; 0: no limit
	HandshakeTime time.Duration
	// WriteTime limits how long an HTTP/2 client may take to read a part of a response, or a byte of its connection's
	// data. The default is one minute.
	WriteTime time.Duration
}

// Engine serves listeners.
type Engine struct {
	cfg        Config
	started    time.Time
	h2         *http.Server
	h2Listener *connListener
	log        *accessLog
	counters   counters
	janitor    janitor

	draining                atomic.Bool
	closing                 atomic.Bool
	mu                      sync.Mutex
	conns                   map[*conn]struct{}
	clients                 map[netip.Addr]*clientCounts // clients with connections; only used with a limit per client
	evicted                 int                          // number of conns that were closed to make room
	isAdmittingAll          bool                         // connections no longer wait for room
	room                    sync.Cond                    // signals that a connection has ended or become idle
	roomWaiters             atomic.Int64                 // number of connections that wait for room
	tunnels                 map[net.Conn]struct{}
	wg                      sync.WaitGroup
	beforeDrain, sinceDrain atomic.Int64 // running requests that started before the drain, and since
	limits                  limits
	activeCalls             atomic.Int64 // requests that are being forwarded
	idleUpstreams           atomic.Int64 // idle connections to backends
}

// New returns an Engine with an empty table.
func New(cfg Config) *Engine {
	if cfg.WriteTime == 0 {
		cfg.WriteTime = writeTimeout
	}
	e := &Engine{
		cfg:     cfg,
		started: time.Now(),
		conns:   map[*conn]struct{}{},
		clients: map[netip.Addr]*clientCounts{},
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

// clock returns the monotonic time since the engine was created, in nanoseconds.
func (e *Engine) clock() int64 { return int64(time.Since(e.started)) }

// timeAt converts a time of the clock to a deadline.
func (e *Engine) timeAt(clock int64) time.Time { return e.started.Add(time.Duration(clock)) }

// Serve accepts connections of an entry until the listener is closed. Each listener has at most one accepted connection
// that is not counted yet. If the limit is reached, further connections wait in the socket's backlog.
func (e *Engine) Serve(ln net.Listener, at *Entry) error {
	wait := time.Millisecond
	for {
		nc, err := ln.Accept()
		if err != nil {
			if isTemporary(err) {
				// Out of file descriptors: wait until a connection ends.
				e.cfg.Log.Warn("accept a connection", "err", err)
				time.Sleep(wait)
				wait = min(2*wait, time.Second)
				continue
			}
			return err
		}
		wait = time.Millisecond
		e.counters.accepted.Add(1)
		c := &conn{e: e, entry: at, nc: nc, accepted: nc, port: at.port, secure: at.secure}
		c.tcp, _ = nc.(*net.TCPConn)
		peer, _ := netip.ParseAddrPort(nc.RemoteAddr().String())
		c.client = peer.Addr().Unmap()
		// A trusted proxy in front has connections of many clients, so its address is not limited.
		if !hasAddress(e.cfg.Trusted, c.client) && !hasAddress(e.cfg.ProxyFrom, c.client) &&
			!e.countClient(c, c.client) {
			_ = nc.Close()
			continue
		}
		e.register(c)
		e.wg.Go(func() {
			c.serve()
			if !c.handedOver {
				e.unregister(c)
			}
		})
	}
}
