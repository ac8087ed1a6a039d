package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"clusterctl/daemons/ingress/route"
)

// long is from where on a body is handed from socket to socket in the kernel.
const long = 64 << 10

// passLength sends the rest of an answer's body, of which the length is known.
func (c *conn) passLength(rule *route.Rule, up *upstream, left int64) (bool, error) {
	if left == 0 {
		return true, nil
	}
	if left >= long && c.tcp != nil && up.tcp != nil && up.buf.r == up.buf.w && c.until == 0 {
		n, err := splice(c.tcp, up.tcp, left, rule.Policy.Read, writeTime, nil, nil)
		up.reading, c.writing = deadline{}, deadline{}
		c.sent += n
		return err == nil, err
	}
	big := up.buf
	if left >= long {
		big = getBuffer(copyBuffer)
		defer big.free()
	}
	for left > 0 {
		up.wait(c.e, rule.Policy.Read, c.until)
		n, err := up.nc.Read(big.b[:min(int64(len(big.b)), left)])
		if n > 0 {
			if err := c.write(big.b[:n], writeTime); err != nil {
				return false, err
			}
			left -= int64(n)
			c.sent += int64(n)
			continue
		}
		if err != nil {
			return false, err
		}
	}
	up.buf.r, up.buf.w = 0, 0
	return true, nil
}

// splice moves n bytes from one socket to another in the kernel, until stop is set. Each socket has its time to get on,
// again and again. With a pace, it returns errSlowBody when from is slower than that and to has taken all that came.
func splice(
	to, from *net.TCPConn,
	n int64,
	read, write time.Duration,
	stop *atomic.Bool,
	pace *bodyPace,
) (moved int64, err error) {
	for moved < n {
		now := time.Now()
		if pace != nil {
			read = pace.within()
		}
		_ = from.SetReadDeadline(now.Add(read))
		_ = to.SetWriteDeadline(now.Add(max(2*read, write)))
		if stop != nil && stop.Load() {
			return moved, os.ErrDeadlineExceeded
		}
		var done int64
		done, err = to.ReadFrom(&io.LimitedReader{R: from, N: n - moved})
		moved += done
		if pace != nil {
			if waits := isTimeout(err) && !unsent(to); waits {
				pace.took(done, time.Since(now))
				if stop.Load() || done > 0 && pace.within() > 0 {
					continue
				}
				return moved, errSlowBody
			}
			pace.took(done, 0)
		}
		switch {
		case err == nil && done == 0:
			return moved, io.ErrUnexpectedEOF
		case err == nil:
		case isTimeout(err) && done > 0 && time.Since(now) < max(2*read, write):
			err = nil // a slow one that gets on: the write's time is not over, so nothing of it is lost
		default:
			return moved, err
		}
	}
	return moved, nil
}

// pump sends the rest of a request's body while the answer is waited for.
type pump struct {
	done chan struct{}
	err  *malformed // what is wrong with the body, to be told to the client
	all  bool       // all of it was sent
	gone bool       // the client ended
	stop atomic.Bool
}

func (c *conn) startPump(rule *route.Rule, up *upstream, left rest) *pump {
	p := &pump{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		c.pumpBody(p, rule, up, left)
		if !p.all && (p.err != nil || p.gone) {
			_ = up.nc.Close() // nobody waits for an answer to half a request
		}
	}()
	return p
}

// stopPump waits for the pump, which is not let go on when the answer is there already. It returns what was wrong with
// the body.
func (c *conn) stopPump(up *upstream) error {
	p := c.pump
	if p == nil {
		return nil
	}
	c.pump = nil
	select {
	case <-p.done:
	default:
		p.stop.Store(true) // before the deadlines: the pump sets its own, and looks then
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		_ = up.nc.SetWriteDeadline(time.Unix(1, 0))
		<-p.done
	}
	c.reading, up.writing = deadline{}, deadline{}
	c.sentAll = p.all
	switch {
	case p.err != nil:
		return p.err
	case p.gone:
		return errClientGone
	}
	return nil
}

func (c *conn) pumpBody(p *pump, rule *route.Rule, up *upstream, left rest) {
	if left.length >= long && c.tcp != nil && up.tcp != nil {
		pace := paceOf(rule)
		_, err := splice(up.tcp, c.tcp, left.length, rule.Policy.Send, rule.Policy.Send, &p.stop, &pace)
		switch p.all = err == nil; {
		case p.all || p.stop.Load():
		case errors.Is(err, errSlowBody):
			p.err = errSlowBody
		default:
			p.gone = peek(c.tcp) == peekClosed
		}
		return
	}
	size := copyBuffer
	if !left.chunked && left.length < upstreamBuffer {
		size = upstreamBuffer
	}
	b := getBuffer(size)
	defer b.free()
	pace := paceOf(rule)
	for left.any() {
		room := b.b
		if !left.chunked {
			room = room[:min(int64(len(room)), left.length)]
		}
		began := time.Now()
		_ = c.nc.SetReadDeadline(began.Add(pace.within()))
		if p.stop.Load() {
			return
		}
		n, err := c.nc.Read(room)
		pace.took(int64(n), time.Since(began))
		switch {
		case n > 0:
		case p.stop.Load():
			return
		case isTimeout(err):
			p.err = errSlowBody
			return
		default:
			p.gone = true
			return
		}
		piece := room[:n]
		if left.chunked {
			used, bad := c.body.through(piece)
			if bad == nil && rule.Policy.MaxBody > 0 && c.body.total > rule.Policy.MaxBody {
				bad = &malformed{413, "the body is too large"}
			}
			if bad != nil {
				p.err = bad
				return
			}
			if left.chunked = !c.body.done(); used < n {
				c.after = append(c.after[:0], piece[used:]...)
				piece = piece[:used]
			}
		} else {
			left.length -= int64(n)
		}
		_ = up.nc.SetWriteDeadline(time.Now().Add(rule.Policy.Send))
		if p.stop.Load() {
			return
		}
		if _, err := up.nc.Write(piece); err != nil {
			return
		}
	}
	p.all = true
}
