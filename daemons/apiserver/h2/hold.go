package h2

import "time"

// A request's body comes right after its headers as a rule. Its handler begins with both, rather than being woken for
// the headers, waiting, and being woken again.

const (
	// mostAwaited is how large a body may be that is waited for.
	mostAwaited = 64 << 10
	// patience is how long it is waited for: the handler decides what becomes of clients that are slow.
	patience = 10 * time.Millisecond
)

// mayHold says whether a stream's handler has time until its body has come.
func (st *stream) mayHold() bool {
	b := &st.body
	return !b.ended && !b.expected && b.announced > 0 && b.announced <= mostAwaited && st.res.instead == 0
}

// hold has a handler begin when its body is there, or patience has ended. The lock is held.
func (c *Conn) hold(st *stream) {
	st.held = true
	switch {
	case c.holding:
		return // its time ends with that of those before
	case c.held == nil:
		c.held = time.AfterFunc(patience, c.beginHeld)
	default:
		c.held.Reset(patience)
	}
	c.holding = true
}

// beginHeld has the handlers begin whose bodies have not come.
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
			_ = c.nc.Close() // its reader ends everything on it
			return
		}
	}
}
