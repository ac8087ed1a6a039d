package proxy

import (
	"crypto/tls"
	"net"
	"sync/atomic"

	"clusterctl/daemons/ingress/route"
)

// Entry is where clients come in: what is served on one port.
type Entry struct {
	secure bool
	port   int // as clients see it
	table  atomic.Pointer[route.Table]
	tls    *tls.Config
	over   atomic.Bool
}

// Open makes an entry with an empty table. secure is for TLS, port what clients connect to as they see it.
func (e *Engine) Open(secure bool, port int) *Entry {
	at := &Entry{secure: secure, port: port}
	at.table.Store(&route.Table{})
	if secure {
		at.tls = e.serverTLS(at)
	}
	return at
}

// SetTable has requests from now on go by a table.
func (at *Entry) SetTable(t *route.Table) { at.table.Store(t) }

// Close has every answer say that its connection ends: there will be no more.
func (at *Entry) Close() {
	at.over.Store(true)
	at.table.Store(&route.Table{})
}

func (c *conn) draining() bool { return c.e.draining.Load() || c.entry.over.Load() }

// serverTLS shows each client the certificate of the name that it asks for.
func (e *Engine) serverTLS(at *Entry) *tls.Config {
	return &tls.Config{
		MinVersion: e.cfg.MinTLS,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := at.table.Load().Certificate(hello.ServerName); cert != nil {
				return cert, nil
			}
			return e.cfg.Default, nil
		},
	}
}

// prefixed is a connection of which something has been read already.
type prefixed struct {
	net.Conn
	buf *buffer
}

func (p *prefixed) Read(b []byte) (int, error) {
	if p.buf != nil {
		if n := copy(b, p.buf.bytes()); n > 0 {
			p.buf.r += n
			return n, nil
		}
		p.buf = nil
	}
	return p.Conn.Read(b)
}
