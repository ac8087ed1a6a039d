package h2

import (
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// body is a request body, as far as it has arrived. It never holds more than the window that the client was given.
type body struct {
	st             *stream
	data           []byte
	contentLength  int64 // Content-Length; -1 if unknown
	received       int64
	isComplete     bool // whether all of it has arrived
	isClosed       bool // whether the handler has closed it
	awaitsContinue bool // whether the client waits for 100 Continue
	window         flowWindow
	deadline       time.Time // read deadline
}

// eagerBody is how many bytes of a body are allocated before any of it arrives. The rest is allocated as it arrives,
// because a large Content-Length costs the client nothing.
const eagerBody = 4 << 10

func (c *Conn) onData(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	length := int64(f.Length)
	if !c.window.consume(length) {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	st := c.streams.open[f.StreamID]
	if st == nil {
		c.sendWindowUpdates(nil, length)
		if err := c.checkNotIdle(f.StreamID); err != nil || c.streams.wasReset(f.StreamID) || c.end.sentGoAway {
			return err
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	b, data := &st.body, f.Data()
	b.received += int64(len(data))
	switch {
	case b.isComplete:
		c.sendWindowUpdates(nil, length)
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeStreamClosed}
	case !b.window.consume(length):
		c.sendWindowUpdates(nil, length)
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	case b.contentLength >= 0 && b.received > b.contentLength:
		c.sendWindowUpdates(nil, length)
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	kept := int64(len(data))
	if b.isClosed {
		kept = 0
	} else {
		if b.data == nil && b.contentLength > kept {
			b.data = make([]byte, 0, min(b.contentLength, 4*max(kept, eagerBody)))
		}
		b.data = append(b.data, data...)
	}
	c.sendWindowUpdates(st, length-kept)
	if f.StreamEnded() {
		return c.endBody(st)
	}
	st.wake()
	return nil
}

// endBody is called when all of a body has arrived.
func (c *Conn) endBody(st *stream) error {
	if st.body.contentLength >= 0 && st.body.received != st.body.contentLength {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	st.body.isComplete = true
	if st.discardTimer != nil {
		c.remove(st)
		return nil
	}
	if st.isHeld {
		st.isHeld = false
		return c.begin(st)
	}
	st.wake()
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.awaitsContinue {
		b.awaitsContinue = false
		if !b.isComplete && len(b.data) == 0 && !b.st.response.wroteHeader {
			b.st.response.inform(http.StatusContinue, nil)
			c.flushLocked()
		}
	}
	for len(b.data) == 0 {
		switch {
		case b.isClosed:
			return 0, http.ErrBodyReadAfterClose
		case b.isComplete:
			return 0, io.EOF
		case b.st.endReason != nil:
			return 0, b.st.endReason
		}
		if err := b.st.wait(&b.deadline); err != nil {
			return 0, err
		}
	}
	if b.isClosed {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, b.data)
	if b.data = b.data[n:]; len(b.data) == 0 && b.isComplete {
		b.data = nil
	}
	c.sendWindowUpdates(b.st, int64(n))
	if len(c.output.pending) > 0 && !b.isComplete {
		c.flushLocked() // the client may be waiting for the window update
	}
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	b.isClosed = true
	c.sendWindowUpdates(b.st, b.discard())
	return nil
}

// discard discards the unread data, and returns its length.
func (b *body) discard() int64 {
	n := len(b.data)
	b.data = nil
	return int64(n)
}
