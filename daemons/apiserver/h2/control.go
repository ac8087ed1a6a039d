package h2

import (
	"time"

	"golang.org/x/net/http2"
)

// Frames that carry no request and no body cost the client nine bytes and the server a look at its streams, an answer,
// or both. A connection has an allowance for them. What it is sent adds to the allowance, since clients answer data
// with window updates and pings; a connection that has used it up is closed with ENHANCE_YOUR_CALM.

const (
	// controlBurst is how many control frames a connection may send at once.
	controlBurst = 10_000
	// controlRate is how many more it may send per second.
	controlRate = 1_000
	// controlPerWrite is how many more it may send for each piece of data that it was sent, and controlPerKiB for its
	// length: clients give back what they have read in steps of some KiB, each by a frame for the stream and one for
	// the connection.
	controlPerWrite = 4
	controlPerKiB   = 1
	// controlMost is how many it may have left: what may still be on its way to a client that reads many answers at
	// once.
	controlMost = 200_000
	// settingsCost is what a SETTINGS frame counts: it may change the window of every stream.
	settingsCost = 20
	// maxSettings is how many settings one frame may have. HTTP/2 defines seven.
	maxSettings = 100
)

// allowance is what a connection may still send in control frames.
type allowance struct {
	left     int
	refilled time.Time
}

// spend takes cost from the allowance; false if it is used up.
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

// earn adds n for what the connection was sent.
func (a *allowance) earn(n int) { a.left = max(a.left, min(a.left+n, controlMost)) }

// controlCost is what a frame takes from the allowance.
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

// pay charges a frame to the connection's allowance.
func (c *Conn) pay(cost int) error {
	if cost == 0 {
		return nil
	}
	c.mu.Lock()
	earned := c.out.answerable
	c.out.answerable = 0
	c.mu.Unlock()
	c.control.earn(earned)
	if !c.control.spend(cost, time.Now) {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
