package h2

import "time"

// A request's body usually follows right after its headers. The handler starts when both have arrived. So it is not
// woken for the headers, only to wait and be woken again.

const (
	// mostAwaited is the largest body, in bytes, that is waited for.
	mostAwaited = 64 << 10
	// patience is how long to wait. After that the handler starts, and decides what to do about a slow client.
	patience = 10 * time.Millisecond
)

// mayHold reports whether a stream's handler may wait for the body.
func (st *stream) mayHold() bool {
	b := &st.body
	return !b.ended && !b.expected && b.announced > 0 && b.announced <= mostAwaited && st.res.instead == 0
}

// hold delays a handler until its body has arrived or patience has ended. The caller holds c.mu.
func (c *Conn) hold(st *stream) {
	st.held = true
	switch {
	case c.holding:
		return // the running timer starts this handler as well
	case c.held == nil:
		c.held = time.AfterFunc(patience, c.beginHeld)
	default:
		c.held.Reset(patience)
	}
	c.holding = true
}

// beginHeld starts the handlers whose bodies have not arrived in time.
func (c *Conn) beginHeld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding = false
	if c.failed != nil {
		return
	}
	for _, st := range c.streams {
		if !st.held {
			continue
		}
		st.held = false
		if err := c.begin(st); err != nil {
			c.failed = err
			_ = c.nc.Close() // the reading goroutine ends all streams
			return
		}
	}
}
