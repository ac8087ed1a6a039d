package proxy

import (
	"crypto/tls"
	"net"
)

// serverTLS shows each client the certificate of the name that it asks for.
func (e *Engine) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: e.cfg.MinTLS,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := e.table.Load().Certificate(hello.ServerName); cert != nil {
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
