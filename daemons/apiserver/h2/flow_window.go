package h2

// flowWindow is the flow-control window for the client's data. Consumed bytes are given back in large steps.
type flowWindow struct{ available, unreturned, size int64 }

// consume takes n bytes from the window. It returns false if the client exceeded the window.
func (c *flowWindow) consume(n int64) bool {
	c.available -= n
	return c.available >= 0
}

// updateFor returns the window update to send after n more bytes were consumed; 0 if it is not due yet.
func (c *flowWindow) updateFor(n int64) uint32 {
	if c.unreturned += n; c.unreturned < c.size/4 {
		return 0
	}
	n, c.unreturned = c.unreturned, 0
	c.available += n
	return uint32(n)
}

// sendWindowUpdates sends due window updates for n consumed bytes: for the connection, and for st unless it is nil.
func (c *Conn) sendWindowUpdates(st *stream, n int64) {
	if n == 0 {
		return
	}
	if more := c.window.updateFor(n); more > 0 {
		c.output.windowUpdate(0, more)
	}
	if st == nil || st.body.isComplete {
		return
	}
	if more := st.body.window.updateFor(n); more > 0 {
		c.output.windowUpdate(st.id, more)
	}
}
