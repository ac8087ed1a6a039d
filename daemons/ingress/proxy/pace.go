package proxy

import (
	"net/http"
	"time"
)

// pace limits how long an HTTP/2 client may take to read a part of a response. After that, the stream is reset, and
// other streams of the connection continue. The deadline is only moved when half of the time has passed, because each
// move is a message to the connection's goroutine.
type pace struct {
	at    *http.ResponseController
	wait  time.Duration
	until time.Time
}

// writing is called before a write.
func (p *pace) writing() {
	if now := time.Now(); p.until.Sub(now) < p.wait/2 {
		p.until = now.Add(p.wait)
		_ = p.at.SetWriteDeadline(p.until) // HTTP/2 response writers support deadlines
	}
}

// waiting is called when there is nothing to write because the backend takes its time.
func (p *pace) waiting() {
	if !p.until.IsZero() {
		p.until = time.Time{}
		_ = p.at.SetWriteDeadline(time.Time{})
	}
}
