package h2

import "time"

// A connection on which nobody has been identified yet takes little memory, whatever is sent on it: a few streams with
// small headers, and a little of their bodies. The first request with credentials lifts that.

const (
	// visitorStreams is how many streams such a connection may have open.
	visitorStreams = 32
	// visitorHeaders is how large the headers of a request may be.
	visitorHeaders = 64 << 10
	// visitorWindow is how much of requests' bodies may be sent ahead: what HTTP/2 begins with.
	visitorWindow = 65535
	// introduction is how long a connection waits, once, for its client to be identified before it refuses further
	// streams. Clients send many requests at once when they have connected. Meanwhile nothing is read, and so nothing
	// heard of a client that has left.
	introduction = time.Second
)

// known says whether the client has been identified.
func (c *Conn) known() bool {
	select {
	case <-c.visitor.Known():
		return true
	default:
		return false
	}
}

// lift gives an identified client what all may have. It is called by the goroutine that reads, when something has come:
// a request's headers are then judged by what the client may have at that moment.
func (c *Conn) lift() {
	if c.lifted || !c.known() {
		return
	}
	c.lifted = true
	c.reader.MaxHeaderListSize = c.limit
	c.input.left += c.mostRead() // the frame that is being read was given a visitor's share
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.size = window
	c.in.left += window - visitorWindow
	c.out.windowUpdate(0, window-visitorWindow)
}

// introduced says whether a further stream may begin. It waits for an unidentified client that has many.
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
