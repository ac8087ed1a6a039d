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
var errSlowBody = &malformed{408, "the body took too long"}

// bodyPace limits how slowly a client may send a request body. The time spent waiting for the client may be at most
// that of one piece, plus one second for every least bytes. Time that the backend takes to read the body does not
// count. Without the limit, a client that sends byte by byte could hold a backend connection indefinitely.
type bodyPace struct {
	wait   time.Duration // limit of one piece
	least  int64         // minimum bytes per second; 0: no minimum
	came   int64
	waited time.Duration
}

func paceOf(rule *route.Rule) bodyPace {
	return bodyPace{wait: rule.Policy.Send, least: rule.Policy.MinRate}
}

// within returns how long the next piece may take.
func (p *bodyPace) within() time.Duration {
	if p.least <= 0 {
		return p.wait
	}
	earned := time.Duration(min(float64(p.came)/float64(p.least), 1<<32) * float64(time.Second))
	return max(min(p.wait, p.wait+earned-p.waited), 0)
}

// took records a piece, and the time spent waiting for it.
func (p *bodyPace) took(n int64, waited time.Duration) {
	p.came += n
	p.waited += waited
}

// unsent reports whether a socket has bytes that the peer has not acknowledged.
func unsent(c *net.TCPConn) bool {
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
	at    *http.ResponseController
	pace  bodyPace
	until time.Time // the current deadline
	late  *atomic.Bool
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	now := time.Now()
	// Avoid moving the deadline, because each move is a message to the connection's goroutine.
	if until := now.Add(b.pace.within()); until.Before(b.until) || until.Sub(b.until) > b.pace.wait/8 {
		b.until = until
		_ = b.at.SetReadDeadline(until) // HTTP/2 readers support deadlines
	}
	n, err := b.ReadCloser.Read(p)
	b.pace.took(int64(n), time.Since(now))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.late.Store(true)
		err = errSlowBody
	}
	return n, err
}
