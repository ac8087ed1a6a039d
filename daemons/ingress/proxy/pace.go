package proxy

import (
	"net/http"
	"time"
)

// pace bounds how long a client of HTTP/2 may take to read a part of an answer. A stream whose client does not read is
// reset after that, and the others of its connection go on. The deadline is moved no more often than half of the time
// has passed, since each move is a message to the goroutine that has the connection.
type pace struct {
	at    *http.ResponseController
	wait  time.Duration
	until time.Time
}

// writing is called before something is written.
func (p *pace) writing() {
	if now := time.Now(); p.until.Sub(now) < p.wait/2 {
		p.until = now.Add(p.wait)
		_ = p.at.SetWriteDeadline(p.until) // HTTP/2's writers have deadlines
	}
}

// waiting is called when there is nothing to write for now: the backend takes its time.
func (p *pace) waiting() {
	if !p.until.IsZero() {
		p.until = time.Time{}
		_ = p.at.SetWriteDeadline(time.Time{})
	}
}
