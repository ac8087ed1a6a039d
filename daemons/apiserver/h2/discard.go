package h2

import (
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// discardWait is how long a stream stays open after its response for the rest of a request body.
const discardWait = time.Second

// discardBody keeps a stream open after its response, so that the client can send the rest of a body that the handler
// did not read. It reports whether it does: only for a rest of known length that fits into the stream's window, and not
// for a client that waits for 100 Continue. Some clients, curl among them, lose a response that is followed by
// RST_STREAM while they are still sending. The caller holds c.mu.
func (c *Conn) discardBody(st *stream) bool {
	b := &st.body
	if b.awaitsContinue || b.contentLength < 0 || b.contentLength-b.received > b.window.available {
		return false
	}
	b.isClosed = true
	c.sendWindowUpdates(nil, b.discard())
	st.req = &http.Request{} // the headers are no longer counted
	st.discardTimer = time.AfterFunc(discardWait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.streams.open[st.id] != st {
			return
		}
		c.resetUnread(st)
		c.remove(st)
		c.flushLocked()
	})
	return true
}

// resetUnread asks the client to stop sending a request body. The response has been sent. The caller holds c.mu.
func (c *Conn) resetUnread(st *stream) {
	c.streams.recordReset(st.id)
	c.output.reset(st.id, http2.ErrCodeNo)
}
