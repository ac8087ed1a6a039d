package proxy

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/run"
)

// Entry is a port for clients, with the table that it serves.
type Entry struct {
	secure bool
	port   int // as seen by clients
	table  atomic.Pointer[route.Table]
	tls    *tls.Config
	closed atomic.Bool
}

// Open returns an entry with an empty table. secure selects TLS. port is the port to which clients connect, as seen by
// them.
func (e *Engine) Open(secure bool, port int) *Entry {
	at := &Entry{secure: secure, port: port}
	at.table.Store(&route.Table{})
	if secure {
		at.tls = e.serverTLS(at)
	}
	return at
}

// SetTable sets the table for new requests.
func (at *Entry) SetTable(t *route.Table) { at.table.Store(t) }

// Close makes every response close its connection, and empties the table.
func (at *Entry) Close() {
	at.closed.Store(true)
	at.table.Store(&route.Table{})
}

func (c *conn) isDraining() bool { return c.e.draining.Load() || c.entry.closed.Load() }

// serverTLS returns a TLS configuration that selects the certificate by server name.
func (e *Engine) serverTLS(at *Entry) *tls.Config {
	return &tls.Config{
		MinVersion: e.cfg.MinTLS,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := at.table.Load().Certificate(hello.ServerName); cert != nil {
				return cert, nil
			}
			return e.cfg.DefaultCert, nil
		},
	}
}

// bufferedConn is a connection from which some data was already read. After Close, the client has a limited time to
// read what it was sent.
type bufferedConn struct {
	net.Conn
	buf       *buffer // nil: no data was read
	readLimit time.Duration
}

func (p *bufferedConn) Close() error { return run.CloseWithin(p.Conn, p.readLimit) }

func (p *bufferedConn) Read(b []byte) (int, error) {
	if p.buf != nil {
		if n := copy(b, p.buf.bytes()); n > 0 {
			p.buf.r += n
			return n, nil
		}
		p.buf = nil
	}
	return p.Conn.Read(b)
}
