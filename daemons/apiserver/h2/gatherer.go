package h2

import (
	"bytes"
	"net"
	"sync"
)

// gatheringListener is a listener whose connections can collect the records that TLS writes, and write them in one
// system call.
type gatheringListener struct{ net.Listener }

// Accept implements net.Listener.
func (g gatheringListener) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatherer{Conn: c}, nil
}

// gathererOf returns the gatherer below a connection; nil if there is none.
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
	held *bytes.Buffer // nil if writes are not being collected
}

// NetConn returns the connection below.
func (g *gatherer) NetConn() net.Conn { return g.Conn }

// maxHeld is how many bytes are collected before they are written.
const maxHeld = 256 << 10

// Write implements net.Conn.
func (g *gatherer) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		return g.Conn.Write(p)
	}
	g.held.Write(p)
	if g.held.Len() < maxHeld {
		return len(p), nil
	}
	return len(p), g.release()
}

func (g *gatherer) release() error {
	_, err := g.Conn.Write(g.held.Bytes())
	g.held.Reset()
	return err
}

// buffers are shared, because of many connections only few write at the same time.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// writeTogether calls write, and sends everything that it has written in one system call.
func (g *gatherer) writeTogether(write func() error) error {
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
