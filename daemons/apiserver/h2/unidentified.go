package h2

import "time"

// A connection without an identified client uses little memory, whatever it sends: it may have a few streams with small
// headers and small body windows. The first authenticated request lifts these limits.

const (
	// unidentifiedStreams is how many streams such a connection may have open.
	unidentifiedStreams = 32
	// unidentifiedHeaders is the maximum size, in bytes, of a request's headers.
	unidentifiedHeaders = 64 << 10
	// unidentifiedWindow is how many bytes of request bodies may be sent ahead. It is the initial window of HTTP/2.
	unidentifiedWindow = 65535
	// identifyTimeout is how long a connection waits for its client to be identified before it refuses further streams.
	// It waits only once. Clients send many requests at once after connecting. During the wait nothing is read, so a
	// disconnect goes unnoticed.
	identifyTimeout = time.Second
)

// isIdentified reports whether the client has been identified.
func (c *Conn) isIdentified() bool {
	select {
	case <-c.identification.Identified():
		return true
	default:
		return false
	}
}

// raiseLimits raises the limits for an identified client. The reading goroutine calls it after each read. So the limits
// at that moment apply to a request's headers.
func (c *Conn) raiseLimits() {
	if c.limitsRaised || !c.isIdentified() {
		return
	}
	c.limitsRaised = true
	c.reader.MaxHeaderListSize = c.maxHeaders
	c.input.remaining += c.maxFrameBytes() // the current frame was limited to a visitor's share
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window.size = windowSize
	c.window.available += windowSize - unidentifiedWindow
	c.output.windowUpdate(0, windowSize-unidentifiedWindow)
}

// canBeginStream reports whether a further stream may begin. It waits if the client is unidentified and has many
// streams.
func (c *Conn) canBeginStream(id uint32) bool {
	if c.limitsRaised {
		return true
	}
	c.mu.Lock()
	few := len(c.streams) < unidentifiedStreams || c.streams[id] != nil
	c.mu.Unlock()
	if few || c.isIdentified() {
		return true
	}
	if c.identifyBy.IsZero() {
		c.identifyBy = time.Now().Add(identifyTimeout)
	}
	timer := time.NewTimer(time.Until(c.identifyBy))
	defer timer.Stop()
	select {
	case <-c.identification.Identified():
		return true
	case <-timer.C:
		return false
	}
}
