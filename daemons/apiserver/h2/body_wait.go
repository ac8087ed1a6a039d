package h2

import "time"

// A request's body usually follows right after its headers. The handler starts when both have arrived, so that its
// goroutine does not have to wait for the body.

const (
	// maxAwaitedBody is the largest body, in bytes, that is waited for.
	maxAwaitedBody = 64 << 10
	// bodyWait is how long to wait. After that the handler starts, and decides what to do about a slow client.
	bodyWait = 10 * time.Millisecond
)

// canHold reports whether a stream's handler may wait for the body.
func (st *stream) canHold() bool {
	b := &st.body
	return !b.isComplete && !b.awaitsContinue && b.contentLength > 0 && b.contentLength <= maxAwaitedBody &&
		st.response.errorStatus == 0
}

// holdForBody delays a handler until its body has arrived or bodyWait has passed. The caller holds c.mu.
func (c *Conn) holdForBody(st *stream) {
	st.isHeld = true
	switch {
	case c.timers.isHeldRunning:
		return // the timer already runs, and starts all waiting handlers
	case c.timers.held == nil:
		c.timers.held = time.AfterFunc(bodyWait, c.startHeld)
	default:
		c.timers.held.Reset(bodyWait)
	}
	c.timers.isHeldRunning = true
}

// startHeld starts the handlers whose bodies have not arrived in time.
func (c *Conn) startHeld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers.isHeldRunning = false
	if c.end.failed != nil {
		return
	}
	for _, st := range c.streams.open {
		if !st.isHeld {
			continue
		}
		st.isHeld = false
		if err := c.begin(st); err != nil {
			c.end.failed = err
			_ = c.nc.Close() // the reading goroutine ends all streams
			return
		}
	}
}
