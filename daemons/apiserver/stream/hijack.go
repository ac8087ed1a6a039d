package stream

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

// notifyingWriter is a response writer whose hijacked connection calls gone when its client leaves. The request's
// context does not end then.
type notifyingWriter struct {
	http.ResponseWriter
	onGone func()
}

// Hijack implements http.Hijacker.
func (a *notifyingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	own := &notifyingConn{Conn: conn, onGone: a.onGone,
		reader: io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}
	return own, bufio.NewReadWriter(bufio.NewReader(own), bufio.NewWriter(own)), nil
}

// notifyingConn closes a connection without losing the last data that was sent to the client.
type notifyingConn struct {
	net.Conn
	reader io.Reader
	onGone func()
	closed sync.Once
}

// Read implements net.Conn.
func (c *notifyingConn) Read(b []byte) (int, error) {
	n, err := c.reader.Read(b)
	if err != nil {
		c.onGone()
	}
	return n, err
}

// closeTimeout is how long a client may take to read the last data.
const closeTimeout = 5 * time.Second

// Close ends the sending direction and waits a while for the client to close as well. Closing a connection with unread
// bytes resets it, and the client would lose the last data.
func (c *notifyingConn) Close() error {
	var err error
	c.closed.Do(func() {
		c.onGone()
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_ = c.Conn.SetReadDeadline(time.Now().Add(closeTimeout))
			_, _ = io.Copy(io.Discard, c.Conn)
		}
		err = c.Conn.Close()
	})
	return err
}

// notifyingTransport returns a transport whose connections call ended when the other side has closed them.
func notifyingTransport(transport http.RoundTripper, ended func()) http.RoundTripper {
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
		return &endingConn{Conn: conn, onEnd: sync.OnceFunc(ended)}, nil
	}
	return t
}

type endingConn struct {
	net.Conn
	onEnd func()
}

// Read implements net.Conn.
func (c *endingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.onEnd()
	}
	return n, err
}
