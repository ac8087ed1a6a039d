package h2

import "time"

// A connection without an identified client uses little memory, whatever it sends: it may have a few streams with small
// headers and small body windows. The first authenticated request lifts these limits.

const (
	// visitorStreams is how many streams such a connection may have open.
	visitorStreams = 32
	// visitorHeaders is the maximum size, in bytes, of a request's headers.
	visitorHeaders = 64 << 10
	// visitorWindow is how many bytes of request bodies may be sent ahead. It is the initial window of HTTP/2.
	visitorWindow = 65535
	// introduction is how long a connection waits for its client to be identified before it refuses further streams. It
	// waits only once. Clients send many requests at once after connecting. During the wait nothing is read, so a
	// disconnect goes unnoticed.
	introduction = time.Second
)

// known reports whether the client has been identified.
func (c *Conn) known() bool {
	select {
	case <-c.visitor.Known():
		return true
	default:
		return false
	}
}

// lift raises the limits for an identified client. The reading goroutine calls it after each read. So the limits at
// that moment apply to a request's headers.
func (c *Conn) lift() {
	if c.lifted || !c.known() {
		return
	}
	c.lifted = true
	c.reader.MaxHeaderListSize = c.limit
	c.input.left += c.mostRead() // the current frame was limited to a visitor's share
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.size = window
	c.in.left += window - visitorWindow
	c.out.windowUpdate(0, window-visitorWindow)
}

// introduced reports whether a further stream may begin. It waits if the client is unidentified and has many streams.
func (c *Conn) introduced(id uint32) bool {
	if c.lifted {
		return true
	}
	c.mu.Lock()
	few := len(c.streams) < visitorStreams || c.streams[id] != nil
	c.mu.Unlock()
	if few || c.known() {
		return true
	}
	if c.introduction.IsZero() {
		c.introduction = time.Now().Add(introduction)
	}
	timer := time.NewTimer(time.Until(c.introduction))
	defer timer.Stop()
	select {
	case <-c.visitor.Known():
		return true
	case <-timer.C:
		return false
	}
}
