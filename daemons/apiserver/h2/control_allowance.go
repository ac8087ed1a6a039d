package h2

import (
	"time"

	"golang.org/x/net/http2"
)

// Frames without a request or a body cost the client nine bytes. They cost the server a search of its streams, a
// response, or both. So each connection has an allowance of such control frames. Data that the server sends adds to the
// allowance, since clients answer data with window updates and pings. A connection that exceeds its allowance is closed
// with ENHANCE_YOUR_CALM.

const (
	// controlBurst is the number of control frames that a connection may send at once.
	controlBurst = 10_000
	// controlRate is how many more it may send per second.
	controlRate = 1_000
	// controlPerWrite is how many more it may send for each piece of data sent to it, and controlPerKiB how many for
	// each KiB of it. Clients give back windows in steps of some KiB, each with a frame for the stream and one for the
	// connection.
	controlPerWrite = 4
	controlPerKiB   = 1
	// maxControl is the largest allowance. It covers the frames of a client that reads many responses at once.
	maxControl = 200_000
	// settingsCost is the cost of a SETTINGS frame, which may change the window of every stream.
	settingsCost = 20
	// maxSettings is how many settings a frame may have. HTTP/2 defines seven.
	maxSettings = 100
)

// allowance is the number of control frames that a connection may still send.
type allowance struct {
	left     int
	refilled time.Time
}

// spend takes cost from the allowance. It returns false if the allowance is used up.
func (a *allowance) spend(cost int, now func() time.Time) bool {
	if a.left -= cost; a.left >= 0 {
		return true
	}
	t := now()
	if a.refilled.IsZero() {
		a.left, a.refilled = a.left+controlBurst, t
	} else if more := int(min(t.Sub(a.refilled), time.Minute) * controlRate / time.Second); more > 0 {
		a.left, a.refilled = max(a.left, min(a.left+more, controlBurst)), t
	}
	return a.left >= 0
}

// earn adds n for data that was sent to the client.
func (a *allowance) earn(n int) { a.left = max(a.left, min(a.left+n, maxControl)) }

// controlCost returns the cost of a frame.
func controlCost(f http2.Frame) int {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return 0
	case *http2.DataFrame:
		if len(f.Data()) > 0 || f.StreamEnded() {
			return 0
		}
	case *http2.SettingsFrame:
		return settingsCost
	}
	return 1
}

// payControl takes the cost of a frame from the connection's allowance.
func (c *Conn) payControl(cost int) error {
	if cost == 0 {
		return nil
	}
	c.mu.Lock()
	earned := c.output.expectedReplies
	c.output.expectedReplies = 0
	c.mu.Unlock()
	c.frames.control.earn(earned)
	if !c.frames.control.spend(cost, time.Now) {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
