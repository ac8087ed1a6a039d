package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/ingress/route"
)

// errSlowBody is the error of a request whose body does not arrive, or arrives too slowly.
var errSlowBody = &statusError{408, "the body took too long"}

// bodyPace limits how slowly a client may send a request body. The time spent waiting for the client may be at most
// that of one piece, plus one second for every least bytes. Time that the backend takes to read the body does not
// count. Without the limit, a client that sends byte by byte could hold a backend connection indefinitely.
type bodyPace struct {
	wait     time.Duration // limit of one piece
	minRate  int64         // minimum bytes per second; 0: no minimum
	received int64
	waited   time.Duration
}

func paceOf(rule *route.Rule) bodyPace {
	return bodyPace{wait: rule.Policy.Send, minRate: rule.Policy.MinRate}
}

// timeLeft returns how long the next piece may take.
func (p *bodyPace) timeLeft() time.Duration {
	if p.minRate <= 0 {
		return p.wait
	}
	earned := time.Duration(min(float64(p.received)/float64(p.minRate), 1<<32) * float64(time.Second))
	return max(min(p.wait, p.wait+earned-p.waited), 0)
}

// count records a piece, and the time spent waiting for it.
func (p *bodyPace) count(n int64, waited time.Duration) {
	p.received += n
	p.waited += waited
}

// hasUnacknowledged reports whether a socket has bytes that the peer has not acknowledged.
func hasUnacknowledged(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err == nil && n > 0
}

// pacedBody is a request body over HTTP/2 with a minimum rate.
type pacedBody struct {
	io.ReadCloser
	controller *http.ResponseController
	pace       bodyPace
	deadline   time.Time // the current deadline
	isTooSlow  *atomic.Bool
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	now := time.Now()
	// Avoid moving the deadline, because each move is a message to the connection's goroutine.
	if until := now.Add(b.pace.timeLeft()); until.Before(b.deadline) || until.Sub(b.deadline) > b.pace.wait/8 {
		b.deadline = until
		_ = b.controller.SetReadDeadline(until) // HTTP/2 readers support deadlines
	}
	n, err := b.ReadCloser.Read(p)
	b.pace.count(int64(n), time.Since(now))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.isTooSlow.Store(true)
		err = errSlowBody
	}
	return n, err
}
