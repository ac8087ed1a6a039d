package proxy

import (
	"net/http"
	"time"
)

// writePace limits how long an HTTP/2 client may take to read a part of a response. After that, the stream is reset,
// and other streams of the connection continue. The deadline is only moved when half of the time has passed, because
// each move is a message to the connection's goroutine.
type writePace struct {
	controller *http.ResponseController
	wait       time.Duration
	deadline   time.Time
}

// beforeWrite is called before a write.
func (p *writePace) beforeWrite() {
	if now := time.Now(); p.deadline.Sub(now) < p.wait/2 {
		p.deadline = now.Add(p.wait)
		_ = p.controller.SetWriteDeadline(p.deadline) // HTTP/2 response writers support deadlines
	}
}

// beforeWait is called when there is nothing to write because the backend takes its time.
func (p *writePace) beforeWait() {
	if !p.deadline.IsZero() {
		p.deadline = time.Time{}
		_ = p.controller.SetWriteDeadline(time.Time{})
	}
}
