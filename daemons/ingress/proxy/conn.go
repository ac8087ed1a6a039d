package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"clusterctl/daemons/ingress/route"
)

// conn is a client connection with its current request.
type conn struct {
	e               *Engine
	entry           *Entry
	nc              net.Conn
	under           net.Conn     // the accepted connection
	tcp             *net.TCPConn // nil with TLS
	raw             *net.TCPConn // also set with TLS
	secure          bool
	port            int
	client          netip.Addr
	of              *client // its client's counts; nil if clients are not limited
	trusted         bool
	ip              []byte // client address as text
	proto, portText []byte // lines of X-Forwarded-Proto and X-Forwarded-Port, each preceded by a line end

	buf     *buffer
	reading deadline
	writing deadline
	req     request
	ans     answer
	body    chunks      // parser of the request body
	out     []byte      // data to write next
	scratch []byte      // buffer for the normalized path
	pump    *pump       // forwards the rest of a request body
	old     *buffer     // holds the request head if buf holds what came after it
	after   []byte      // bytes after the body that the pump read
	handed  bool        // another owner has taken over the connection
	idle    atomic.Bool // waiting for a request
	// since is when it started to wait for a complete request, by the engine's clock; 0 while a request is handled
	since    atomic.Int64
	last     bool // the engine is closing, and this is the last request
	requests int
	sentAll  bool // the pump forwarded the whole body

	ended   bool // the connection cannot be used for another request
	status  int
	sent    int64 // bytes of the response body
	began   int64
	rule    *route.Rule
	headers *route.Headers // header changes of the request and of the response
	answers *route.Headers
	until   int64 // deadline set by a rule, by the engine's clock; 0 for none
	backend *endpoint
	tried   []*endpoint
}

// serve handles the connection until it ends.
func (c *conn) serve() {
	c.raw = c.tcp
	c.buf = getBuffer(clientBuffer)
	defer func() {
		if !c.handed {
			c.buf.free()
			_ = c.nc.Close()
		}
	}()
	c.trusted = contains(c.e.cfg.Trusted, c.client)
	if contains(c.e.cfg.ProxyFrom, c.client) {
		if err := c.readProxy(); err != nil {
			c.e.cfg.Log.Debug("read the PROXY protocol", "client", c.client, "err", err)
			return
		}
		if c.trusted = contains(c.e.cfg.Trusted, c.client); !c.trusted && !c.e.join(c, c.client) {
			return
		}
	}
	c.identify()
	if c.secure {
		if !c.handshake() {
			return
		}
	} else if c.preface() {
		c.e.handHTTP2(&prefixed{Conn: c.nc, buf: c.buf}, c)
		return
	}
	for c.next() {
	}
}

func contains(all []netip.Prefix, a netip.Addr) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// identify prepares the header lines that describe the client to backends.
func (c *conn) identify() {
	c.ip = c.client.AppendTo(nil)
	proto := "http"
	if c.secure {
		proto = "https"
	}
	c.proto = []byte("\r\nX-Forwarded-Proto: " + proto)
	c.portText = []byte("\r\nX-Forwarded-Port: " + strconv.Itoa(c.port))
}

// handshake performs the TLS handshake. It returns false if the connection is finished: the handshake failed, or HTTP/2
// was served.
func (c *conn) handshake() bool {
	under := c.nc
	if c.buf.r < c.buf.w {
		under = &prefixed{Conn: c.nc, buf: c.buf}
	}
	secure := tls.Server(under, c.entry.tls)
	_ = c.nc.SetDeadline(time.Now().Add(c.e.cfg.HandshakeIn))
	if err := secure.Handshake(); err != nil {
		c.e.counters.handshakes.Add(1)
		return false
	}
	_ = c.nc.SetDeadline(time.Time{})
	c.nc, c.tcp = secure, nil
	if under != c.raw { // the prefix was read, so its buffer was freed
		c.buf = getBuffer(clientBuffer)
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		c.e.handHTTP2(secure, c)
		return false
	}
	return true
}

const prefaceHTTP2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// preface reports whether a plaintext connection starts with the preface of HTTP/2 with prior knowledge.
func (c *conn) preface() bool {
	for {
		b := c.buf.bytes()
		n := min(len(b), len(prefaceHTTP2))
		if string(b[:n]) != prefaceHTTP2[:n] {
			return false
		}
		if n == len(prefaceHTTP2) {
			return true
		}
		wait := c.e.cfg.Idle
		if n > 0 {
			wait = c.e.cfg.HeadTime
		}
		if c.fill(wait) != nil {
			return false
		}
	}
}

// fill reads more data into the buffer.
func (c *conn) fill(wait time.Duration) error {
	if !c.buf.room(c.e.cfg.MaxHead) {
		return errHeadSize
	}
	if !c.last && c.reading.extend(c.e.clock(), wait) {
		_ = c.nc.SetReadDeadline(c.e.at(c.reading.at))
		if c.e.closing.Load() && c.idle.Load() {
			return os.ErrDeadlineExceeded // the engine has set an expired deadline, which was just overwritten
		}
	}
	return c.read()
}

func (c *conn) read() error {
	n, err := c.nc.Read(c.buf.b[c.buf.w:])
	if c.buf.w += n; n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// next handles the next request. It returns false if the connection must be closed.
func (c *conn) next() bool {
	size, ok := c.readHead()
	if !ok {
		return false
	}
	gen := c.e.begin()
	defer gen.Add(-1)
	c.requests++
	c.began, c.status, c.sent, c.rule, c.backend, c.until = c.e.clock(), 0, 0, nil, nil, 0
	c.ended = !c.req.persists() || c.draining()
	c.buf.r += size
	c.answer()
	c.record()
	c.putBack()
	return !c.ended
}

// putBack moves the data that was read after a body to the start of the buffer, for the next request. The request head
// must no longer be needed.
func (c *conn) putBack() {
	if c.old != nil {
		c.old.free()
		c.old = nil
	}
	if len(c.after) == 0 {
		return
	}
	if len(c.after) > len(c.buf.b) {
		c.buf.free()
		c.buf = getBuffer(copyBuffer)
	}
	c.buf.r, c.buf.w = 0, copy(c.buf.b, c.after)
	c.after = c.after[:0]
}

// readHead reads a request head. It returns false if there is none; an error response was sent in that case.
func (c *conn) readHead() (int, bool) {
	c.idle.Store(true)
	defer c.idle.Store(false)
	if c.requests > 0 {
		c.waits()
	}
	parsed, first := 0, int64(0)
	for {
		if b := c.buf.bytes(); len(b) > parsed && bytes.IndexByte(b[parsed:], '\n') >= 0 {
			size, err := c.req.parse(b)
			switch {
			case err == nil:
				return size, c.busy()
			case err != errIncomplete:
				c.refuse(err)
				return 0, false
			}
			parsed = len(b)
		}
		if c.e.closing.Load() && c.buf.r == c.buf.w && !c.lastChance() {
			return 0, false
		}
		wait := c.e.cfg.Idle
		if c.buf.r < c.buf.w {
			now := c.e.clock()
			if first == 0 {
				first = now
			}
			// A client that sends byte by byte gets no extra time.
			if c.reading.exact(first + int64(c.e.cfg.HeadTime)) {
				_ = c.nc.SetReadDeadline(c.e.at(c.reading.at))
			}
			wait = 0
		}
		err := c.more(wait)
		var timeout net.Error
		switch {
		case err == nil:
		case errors.Is(err, errHeadSize):
			c.refuse(errHeadSize)
			return 0, false
		case errors.As(err, &timeout) && timeout.Timeout() && c.buf.r < c.buf.w:
			c.refuse(&malformed{408, "the head took too long"})
			return 0, false
		case isTimeout(err) && c.e.closing.Load() && !c.last: // woken up by the closing engine
		default:
			return 0, false
		}
	}
}

// more is fill, but keeps the current deadline if wait is 0.
func (c *conn) more(wait time.Duration) error {
	if wait > 0 {
		return c.fill(wait)
	}
	if !c.buf.room(c.e.cfg.MaxHead) {
		return errHeadSize
	}
	return c.read()
}

// lastChance reports whether a request may still arrive when the engine closes: one whose data is already here, or the
// first of a recently accepted connection. It must arrive within lastWait.
func (c *conn) lastChance() bool {
	if c.last || c.requests > 0 && (c.raw == nil || peek(c.raw) != peekData) {
		return false
	}
	c.last = true
	c.reading.exact(c.e.clock() + int64(lastWait))
	_ = c.nc.SetReadDeadline(c.e.at(c.reading.at))
	return true
}

const lastWait = time.Second

// write sends b to the client.
func (c *conn) write(b []byte, wait time.Duration) error {
	if c.writing.extend(c.e.clock(), wait) {
		_ = c.nc.SetWriteDeadline(c.e.at(c.writing.at))
	}
	_, err := c.nc.Write(b)
	return err
}

// refuse responds to a request that could not be parsed, and ends the connection.
func (c *conn) refuse(why *malformed) {
	gen := c.e.begin()
	defer gen.Add(-1)
	c.began, c.sent, c.rule, c.backend, c.ended = c.e.clock(), 0, nil, nil, true
	c.req.method, c.req.target, c.req.host, c.req.minor = nil, nil, nil, 1
	c.fail(why.status, why.why)
	c.record()
}

// fail sends an error response.
func (c *conn) fail(status int, why string) {
	c.status = status
	c.out = appendError(c.out[:0], status, why, c.ended || c.req.minor == 0, string(c.req.method) == "HEAD")
	if c.write(c.out, writeTime) != nil {
		c.ended = true
	}
	if c.ended {
		c.linger()
	}
}

const writeTime = time.Minute

// linger reads for a moment from a client that is still sending. Closing a connection with unread data resets it, and
// the response may be lost.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.nc, 256<<10)
}
