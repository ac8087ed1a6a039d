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

// spliceSize is the body size in bytes from which the kernel copies between the sockets.
const spliceSize = 64 << 10

// sendFixedLength forwards the rest of a response body of known length.
func (c *conn) sendFixedLength(rule *route.Rule, up *upstream, left int64) (bool, error) {
	if left == 0 {
		return true, nil
	}
	if left >= spliceSize && c.tcp != nil && up.tcp != nil && up.buf.r == up.buf.w && c.ruleDeadline == 0 {
		n, err := splice(c.tcp, up.tcp, left, rule.Policy.Read, writeTimeout, nil, nil)
		up.readDeadline, c.writeDeadline = deadline{}, deadline{}
		c.sent += n
		return err == nil, err
	}
	big := up.buf
	if left >= spliceSize {
		big = getBuffer(copyBuffer)
		defer big.free()
	}
	for left > 0 {
		up.setReadDeadline(c.e, rule.Policy.Read, c.ruleDeadline)
		n, err := up.nc.Read(big.b[:min(int64(len(big.b)), left)])
		if n > 0 {
			if err := c.write(big.b[:n], writeTimeout); err != nil {
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
			read = pace.timeLeft()
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
			if waits := isTimeout(err) && !hasUnacknowledged(to); waits {
				pace.count(done, time.Since(now))
				if stop.Load() || done > 0 && pace.timeLeft() > 0 {
					continue
				}
				return moved, errSlowBody
			}
			pace.count(done, 0)
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
	done         chan struct{}
	err          *statusError // error in the body, to report to the client
	isComplete   bool         // the whole body was forwarded
	isClientGone bool         // the client has closed the connection
	stop         atomic.Bool
}

func (c *conn) startPump(rule *route.Rule, up *upstream, left unsentBody) *pump {
	p := &pump{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		c.pumpBody(p, rule, up, left)
		if !p.isComplete && (p.err != nil || p.isClientGone) {
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
	c.readDeadline, up.writeDeadline = deadline{}, deadline{}
	c.bodySent = p.isComplete
	switch {
	case p.err != nil:
		return p.err
	case p.isClientGone:
		return errClientGone
	}
	return nil
}

func (c *conn) pumpBody(p *pump, rule *route.Rule, up *upstream, left unsentBody) {
	if left.length >= spliceSize && c.tcp != nil && up.tcp != nil {
		pace := paceOf(rule)
		_, err := splice(up.tcp, c.tcp, left.length, rule.Policy.Send, rule.Policy.Send, &p.stop, &pace)
		switch p.isComplete = err == nil; {
		case p.isComplete || p.stop.Load():
		case errors.Is(err, errSlowBody):
			p.err = errSlowBody
		default:
			p.isClientGone = peek(c.tcp) == peekClosed
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
	for left.hasData() {
		room := b.b
		if !left.chunked {
			room = room[:min(int64(len(room)), left.length)]
		}
		start := time.Now()
		_ = c.nc.SetReadDeadline(start.Add(pace.timeLeft()))
		if p.stop.Load() {
			return
		}
		n, err := c.nc.Read(room)
		pace.count(int64(n), time.Since(start))
		switch {
		case n > 0:
		case p.stop.Load():
			return
		case isTimeout(err):
			p.err = errSlowBody
			return
		default:
			p.isClientGone = true
			return
		}
		piece := room[:n]
		if left.chunked {
			used, bad := c.body.consume(piece)
			if bad == nil && rule.Policy.MaxBody > 0 && c.body.total > rule.Policy.MaxBody {
				bad = &statusError{413, "the body is too large"}
			}
			if bad != nil {
				p.err = bad
				return
			}
			if left.chunked = !c.body.isDone(); used < n {
				c.afterBody = append(c.afterBody[:0], piece[used:]...)
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
	p.isComplete = true
}
