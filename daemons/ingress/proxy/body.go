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

// long is the body size in bytes from which the kernel copies between the sockets.
const long = 64 << 10

// passLength forwards the rest of a response body of known length.
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

// splice moves n bytes between two sockets in the kernel, until stop is set. Each socket gets a new deadline for every
// step. With a pace, splice returns errSlowBody if from is too slow while to has taken all data.
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
			err = nil // slow but making progress; the write deadline has not expired, so no data is lost
		default:
			return moved, err
		}
	}
	return moved, nil
}

// pump forwards the rest of a request body while the response is awaited.
type pump struct {
	done chan struct{}
	err  *malformed // error in the body, to report to the client
	all  bool       // the whole body was forwarded
	gone bool       // the client has closed the connection
	stop atomic.Bool
}

func (c *conn) startPump(rule *route.Rule, up *upstream, left rest) *pump {
	p := &pump{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		c.pumpBody(p, rule, up, left)
		if !p.all && (p.err != nil || p.gone) {
			_ = up.nc.Close() // an incomplete request gets no response
		}
	}()
	return p
}

// stopPump stops the pump and waits for it, because the response may arrive before the body is forwarded. It returns
// the error in the body.
func (c *conn) stopPump(up *upstream) error {
	p := c.pump
	if p == nil {
		return nil
	}
	c.pump = nil
	select {
	case <-p.done:
	default:
		p.stop.Store(true) // before the deadlines: the pump checks it after setting its own deadlines
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
