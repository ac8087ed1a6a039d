package h2

import (
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

type gatherer struct {
	net.Conn

	mu   sync.Mutex
	hold bool
	held []byte
}

// mostHeld is how much is written at once.
const mostHeld = 256 << 10

// Write implements net.Conn.
func (g *gatherer) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.hold {
		return g.Conn.Write(p)
	}
	g.held = append(g.held, p...)
	if len(g.held) < mostHeld {
		return len(p), nil
	}
	return len(p), g.release()
}

func (g *gatherer) release() error {
	_, err := g.Conn.Write(g.held)
	g.held = g.held[:0]
	return err
}

// together calls write and writes what that has written as one.
func (g *gatherer) together(write func() error) error {
	g.mu.Lock()
	g.hold = true
	g.mu.Unlock()
	err := write()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = false
	if err == nil && len(g.held) > 0 {
		err = g.release()
	}
	g.held = nil // most answers are small
	return err
}
