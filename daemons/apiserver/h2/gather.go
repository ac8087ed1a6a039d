package h2

import (
	"bytes"
	"net"
	"sync"
)

// gathering is a listener whose connections can hold back what TLS writes to them, record by
// record, and write it at once.
type gathering struct{ net.Listener }

// Accept implements net.Listener.
func (g gathering) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatherer{Conn: c}, nil
}

// gathererOf is the one below a connection, nil if there is none.
func gathererOf(conn net.Conn) *gatherer {
	for {
		switch c := conn.(type) {
		case *gatherer:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

type gatherer struct {
	net.Conn

	mu   sync.Mutex
	held *bytes.Buffer // nil: nothing is held back
}

// mostHeld is how much is written at once.
const mostHeld = 256 << 10

// Write implements net.Conn.
func (g *gatherer) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		return g.Conn.Write(p)
	}
	g.held.Write(p)
	if g.held.Len() < mostHeld {
		return len(p), nil
	}
	return len(p), g.release()
}

func (g *gatherer) release() error {
	_, err := g.Conn.Write(g.held.Bytes())
	g.held.Reset()
	return err
}

// buffers are shared: connections are many, and those that write at one time few.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// together calls write and writes what that has written as one.
func (g *gatherer) together(write func() error) error {
	held := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(held)
	g.mu.Lock()
	g.held = held
	g.mu.Unlock()
	err := write()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && held.Len() > 0 {
		err = g.release()
	}
	held.Reset()
	g.held = nil
	return err
}
