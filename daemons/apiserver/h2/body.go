package h2

import (
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// body is a request body, as far as it has arrived. It never holds more than the window that the client was given.
type body struct {
	st        *stream
	data      []byte
	announced int64 // Content-Length; -1 if unknown
	received  int64
	ended     bool // whether all of it has arrived
	closed    bool // whether the handler has closed it
	expected  bool // whether the client waits for 100 Continue
	in        credit
	deadline  time.Time // read deadline
}

// eagerBody is how many bytes of a body are allocated before any of it arrives. The rest is allocated as it arrives,
// because a large Content-Length costs the client nothing.
const eagerBody = 4 << 10

// credit is the flow-control window for the client's data. Consumed bytes are given back in large steps.
type credit struct{ left, owed, size int64 }

// spend takes n bytes from the window. It returns false if the client exceeded the window.
func (c *credit) spend(n int64) bool {
	c.left -= n
	return c.left >= 0
}

// due returns the window update to send after n more bytes were consumed; 0 if it is not due yet.
func (c *credit) due(n int64) uint32 {
	if c.owed += n; c.owed < c.size/4 {
		return 0
	}
	n, c.owed = c.owed, 0
	c.left += n
	return uint32(n)
}

// giveBack sends due window updates for n consumed bytes: for the connection, and for st unless it is nil.
func (c *Conn) giveBack(st *stream, n int64) {
	if n == 0 {
		return
	}
	if more := c.in.due(n); more > 0 {
		c.out.windowUpdate(0, more)
	}
	if st == nil || st.body.ended {
		return
	}
	if more := st.body.in.due(n); more > 0 {
		c.out.windowUpdate(st.id, more)
	}
}

func (c *Conn) onData(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	length := int64(f.Length)
	if !c.in.spend(length) {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	st := c.streams[f.StreamID]
	if st == nil {
		c.giveBack(nil, length)
		if err := c.closed(f.StreamID); err != nil || c.forgotten(f.StreamID) || c.going {
			return err
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	b, data := &st.body, f.Data()
	b.received += int64(len(data))
	switch {
	case b.ended:
		c.giveBack(nil, length)
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeStreamClosed}
	case !b.in.spend(length):
		c.giveBack(nil, length)
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	case b.announced >= 0 && b.received > b.announced:
		c.giveBack(nil, length)
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	kept := int64(len(data))
	if b.closed {
		kept = 0
	} else {
		if b.data == nil && b.announced > kept {
			b.data = make([]byte, 0, min(b.announced, 4*max(kept, eagerBody)))
		}
		b.data = append(b.data, data...)
	}
	c.giveBack(st, length-kept)
	if f.StreamEnded() {
		return c.bodyEnds(st)
	}
	st.look()
	return nil
}

// bodyEnds is called when all of a body has arrived.
func (c *Conn) bodyEnds(st *stream) error {
	if st.body.announced >= 0 && st.body.received != st.body.announced {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	st.body.ended = true
	if st.discard != nil {
		c.remove(st)
		return nil
	}
	if st.held {
		st.held = false
		return c.begin(st)
	}
	st.look()
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	c := b.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.expected {
		b.expected = false
		if !b.ended && len(b.data) == 0 && !b.st.res.wrote {
			b.st.res.inform(http.StatusContinue, nil)
			c.flushLocked()
		}
	}
	for len(b.data) == 0 {
		switch {
		case b.closed:
			return 0, http.ErrBodyReadAfterClose
		case b.ended:
			return 0, io.EOF
		case b.st.gone != nil:
			return 0, b.st.gone
		}
		if err := b.st.wait(&b.deadline); err != nil {
			return 0, err
		}
	}
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, b.data)
	if b.data = b.data[n:]; len(b.data) == 0 && b.ended {
		b.data = nil
	}
	c.giveBack(b.st, int64(n))
	if len(c.out.buf) > 0 && !b.ended {
		c.flushLocked() // the client may be waiting for the window update
	}
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	c := b.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closed = true
	c.giveBack(b.st, b.drop())
	return nil
}

// drop discards the unread data, and returns its length.
func (b *body) drop() int64 {
	n := len(b.data)
	b.data = nil
	return int64(n)
}
