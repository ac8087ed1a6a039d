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

// Hijack implements http.Hijacker. It records status 101, because a hijacked connection gets no other response.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.code == 0 {
		r.code = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// attended is a response writer whose hijacked connection calls gone when its client leaves. The request's context does
// not end then.
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

// attendedConn closes a connection without losing the last data that was sent to the client.
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

// lastWords is how long a client may take to read the last data.
const lastWords = 5 * time.Second

// Close ends the sending direction and waits a while for the client to close as well. Closing a connection with unread
// bytes resets it, and the client would lose the last data.
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

// attentive returns a transport whose connections call ended when the other side has closed them.
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
