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

// errSlowBody is why a request ends whose body does not come, or comes too slowly.
var errSlowBody = &malformed{408, "the body took too long"}

// bodyPace limits how slowly a client may send a request body. The time spent waiting for the client may be at most
// that of one piece, plus one second for every least bytes. Time that the backend takes to read the body does not
// count. Without the limit, a client that sends byte by byte could hold a backend connection indefinitely.
type bodyPace struct {
	wait   time.Duration // for a piece
	least  int64         // bytes in a second; 0: any
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

// took takes in a piece, and how long it was waited for.
func (p *bodyPace) took(n int64, waited time.Duration) {
	p.came += n
	p.waited += waited
}

// unsent reports whether a socket has bytes that the other end has not taken yet.
func unsent(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err == nil && n > 0
}

// pacedBody is the body of a request over HTTP/2 that may not come too slowly.
type pacedBody struct {
	io.ReadCloser
	at    *http.ResponseController
	pace  bodyPace
	until time.Time // the deadline that is set
	late  *atomic.Bool
}

// Read is of io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	now := time.Now()
	// Each move of the deadline is a message to the goroutine that has the connection.
	if until := now.Add(b.pace.within()); until.Before(b.until) || until.Sub(b.until) > b.pace.wait/8 {
		b.until = until
		_ = b.at.SetReadDeadline(until) // HTTP/2's readers have deadlines
	}
	n, err := b.ReadCloser.Read(p)
	b.pace.took(int64(n), time.Since(now))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.late.Store(true)
		err = errSlowBody
	}
	return n, err
}
