package h2

import (
	"crypto/tls"
	"time"

	"clusterctl/daemons/run"
)

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

// clientState is what is known about the client of a connection. Only the reading goroutine uses limitsRaised and
// identifyBy.
type clientState struct {
	tls            tls.ConnectionState
	remote         string                // its address
	identification *run.UnidentifiedConn // reports whether the client has been identified
	limitsRaised   bool                  // see raiseLimits
	// until when the connection waits for its client to be identified; zero if it has not had to wait
	identifyBy time.Time
}

// isIdentified reports whether the client has been identified.
func (c *clientState) isIdentified() bool {
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
	if c.client.limitsRaised || !c.client.isIdentified() {
		return
	}
	c.client.limitsRaised = true
	c.frames.framer.MaxHeaderListSize = c.frames.maxHeaders
	c.frames.input.remaining += c.frames.maxFrameBytes() // the current frame was limited to a visitor's share
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window.size = windowSize
	c.window.available += windowSize - unidentifiedWindow
	c.output.windowUpdate(0, windowSize-unidentifiedWindow)
}

// canBeginStream reports whether a further stream may begin. It waits if the client is unidentified and has many
// streams.
func (c *Conn) canBeginStream(id uint32) bool {
	if c.client.limitsRaised {
		return true
	}
	c.mu.Lock()
	few := len(c.streams.open) < unidentifiedStreams || c.streams.open[id] != nil
	c.mu.Unlock()
	if few || c.client.isIdentified() {
		return true
	}
	if c.client.identifyBy.IsZero() {
		c.client.identifyBy = time.Now().Add(identifyTimeout)
	}
	timer := time.NewTimer(time.Until(c.client.identifyBy))
	defer timer.Stop()
	select {
	case <-c.client.identification.Identified():
		return true
	case <-timer.C:
		return false
	}
}
