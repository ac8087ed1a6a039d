package proxy

import (
	"errors"
	"io"
	"strconv"
	"time"

	"clusterctl/daemons/ingress/route"
)

// clientCheckInterval is how often to check for a disconnected client while waiting for a backend.
const clientCheckInterval = 2 * time.Second

// sendResponse sends the response to the client.
func (c *conn) sendResponse(rule *route.Rule, up *upstream, left unsentBody) {
	a := &c.res
	c.status = a.status
	if a.status == 101 {
		c.tunnel(rule, up)
		return
	}
	out := appendAnswer(c.out[:0], a, c.responseChanges)
	framing := c.responseFraming()
	switch framing {
	case framingChunks, framingToChunks:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case framingUntilClose, framingFromChunks:
		c.ended = true
	}
	if c.ended || c.isDraining() {
		c.ended = true
		out = append(out, "Connection: close\r\n"...)
	} else if c.req.minor == 0 {
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	c.out = append(out, '\r', '\n')
	whole, err := c.sendBody(rule, up, framing)
	clean := err == nil && whole
	if c.pump != nil {
		bad := c.stopPump(up)
		if bad != nil || !c.bodySent {
			clean, c.ended = false, true
		}
	}
	if !clean {
		c.ended = true
	}
	if clean && a.isPersistent() && framing != framingUntilClose && up.buf.r == up.buf.w {
		up.endpoint.putIdle(up)
	} else {
		up.close()
	}
	if c.ended && err == nil && (left.hasData() || c.buf.r < c.buf.w) {
		c.discardInput()
	}
}

// framing is how the end of a response body is marked when reading and when writing.
type framing uint8

const (
	framingNone       framing = iota
	framingLength             // Content-Length on both sides
	framingChunks             // chunked on both sides
	framingFromChunks         // read chunked, write until close
	framingToChunks           // read until close, write chunked
	framingUntilClose         // until close on both sides
)

func (c *conn) responseFraming() framing {
	a := &c.res
	switch {
	case !a.hasBody(string(c.req.method) == "HEAD"):
		return framingNone
	case a.chunked && c.req.minor > 0:
		return framingChunks
	case a.chunked:
		return framingFromChunks
	case a.length >= 0:
		return framingLength
	case c.req.minor > 0:
		return framingToChunks
	}
	return framingUntilClose
}

// sendBody sends the head in c.out and the body. whole reports whether the body is complete.
func (c *conn) sendBody(rule *route.Rule, up *upstream, f framing) (whole bool, err error) {
	a := &c.res
	switch f {
	case framingNone:
		return true, c.write(c.out, writeTimeout)
	case framingLength:
		b := up.buf.bytes()
		n := int(min(int64(len(b)), a.length))
		c.out = append(c.out, b[:n]...)
		up.buf.r += n
		c.sent = int64(n)
		if err := c.write(c.out, writeTimeout); err != nil {
			return false, err
		}
		return c.sendFixedLength(rule, up, a.length-int64(n))
	}
	var body chunks
	for {
		if b := up.buf.bytes(); len(b) > 0 {
			used, done, bad := c.appendPiece(b, f, &body)
			if bad != nil {
				return false, bad
			}
			if up.buf.r += used; done {
				return true, c.write(c.out, writeTimeout)
			}
		}
		if len(c.out) > 0 {
			if err := c.write(c.out, writeTimeout); err != nil {
				return false, err
			}
			c.out = c.out[:0]
		}
		switch err := up.fill(c.e, rule.Policy.Read, c.ruleDeadline); {
		case err == nil:
		case errors.Is(err, io.EOF) && (f == framingToChunks || f == framingUntilClose):
			if f == framingToChunks {
				err = c.write([]byte("0\r\n\r\n"), writeTimeout)
				return err == nil, err
			}
			return true, nil
		default:
			return false, err
		}
	}
}

// appendPiece appends a piece of a body to c.out in the client's framing. It returns the number of bytes used, and
// whether the body has ended.
func (c *conn) appendPiece(b []byte, f framing, body *chunks) (used int, done bool, err *statusError) {
	switch f {
	case framingChunks:
		before := body.total
		n, err := body.consume(b)
		c.out = append(c.out, b[:n]...)
		c.sent += body.total - before
		return n, body.isDone(), err
	case framingFromChunks:
		for used < len(b) && !body.isDone() {
			n, data, err := body.parse(b[used:])
			if err != nil {
				return used, false, err
			}
			c.out = append(c.out, data...)
			c.sent += int64(len(data))
			used += n
		}
		return used, body.isDone(), nil
	case framingToChunks:
		c.out = strconv.AppendInt(c.out, int64(len(b)), 16)
		c.out = append(c.out, '\r', '\n')
		c.out = append(c.out, b...)
		c.out = append(c.out, '\r', '\n')
	default:
		c.out = append(c.out, b...)
	}
	c.sent += int64(len(b))
	return len(b), false, nil
}
