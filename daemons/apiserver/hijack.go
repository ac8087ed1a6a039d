package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Hijack implements http.Hijacker: a connection that is taken over has its answer.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.code == 0 {
		r.code = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// attended is a writer whose connection, when taken over, says when its client is gone:
// the request's context no longer does.
type attended struct {
	http.ResponseWriter
	gone func()
}

// Hijack implements http.Hijacker.
func (a *attended) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	own := &attendedConn{Conn: conn, gone: a.gone, from: io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}
	return own, bufio.NewReadWriter(bufio.NewReader(own), bufio.NewWriter(own)), nil
}

// attendedConn closes without losing what its client was told last.
type attendedConn struct {
	net.Conn
	from   io.Reader
	gone   func()
	closed sync.Once
}

// Read implements net.Conn.
func (c *attendedConn) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	if err != nil {
		c.gone()
	}
	return n, err
}

// lastWords is how long a client may take to read what it is told last.
const lastWords = 5 * time.Second

// Close says that nothing more comes and waits a while for the client to close as well: a
// connection that is closed over unread bytes is reset, and the client loses what was said.
func (c *attendedConn) Close() error {
	var err error
	c.closed.Do(func() {
		c.gone()
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_ = c.Conn.SetReadDeadline(time.Now().Add(lastWords))
			_, _ = io.Copy(io.Discard, c.Conn)
		}
		err = c.Conn.Close()
	})
	return err
}

// attentive returns a transport whose connections say when the other side has ended them.
func attentive(transport http.RoundTripper, ended func()) http.RoundTripper {
	t, ok := transport.(*http.Transport)
	if !ok || t.DialContext == nil {
		return transport
	}
	t = t.Clone()
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &endingConn{Conn: conn, ended: sync.OnceFunc(ended)}, nil
	}
	return t
}

type endingConn struct {
	net.Conn
	ended func()
}

// Read implements net.Conn.
func (c *endingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.ended()
	}
	return n, err
}
