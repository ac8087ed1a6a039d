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
	"clusterctl/daemons/run"
)

// conn is a client connection with its current request.
type conn struct {
	e                   *Engine
	entry               *Entry
	nc                  net.Conn
	accepted            net.Conn     // the accepted connection
	tcp                 *net.TCPConn // nil with TLS
	raw                 *net.TCPConn // also set with TLS
	secure              bool
	port                int
	client              netip.Addr
	counts              *clientCounts // its client's counts; nil if clients are not limited
	trusted             bool
	ip                  []byte // client address as text
	protoLine, portLine []byte // lines of X-Forwarded-Proto and X-Forwarded-Port, each preceded by a line end

	buf           *buffer
	readDeadline  deadline
	writeDeadline deadline
	req           request
	res           response
	body          chunks      // parser of the request body
	out           []byte      // data to write next
	scratch       []byte      // buffer for the normalized path
	pump          *pump       // forwards the rest of a request body
	headBuffer    *buffer     // holds the request head if buf holds what came after it
	afterBody     []byte      // bytes after the body that the pump read
	handedOver    bool        // another owner has taken over the connection
	idle          atomic.Bool // waiting for a request
	// waitingSince is when it started to wait for a complete request, by the engine's clock; 0 while a request is
	// handled
	waitingSince atomic.Int64
	isLast       bool // the engine is closing, and this is the last request
	requests     int
	bodySent     bool // the pump forwarded the whole body

	ended           bool // the connection cannot be used for another request
	status          int
	sent            int64 // bytes of the response body
	start           int64
	rule            *route.Rule
	requestChanges  *route.Headers // header changes of the request and of the response
	responseChanges *route.Headers
	ruleDeadline    int64 // deadline set by a rule, by the engine's clock; 0 for none
	backend         *endpoint
	tried           []*endpoint
}

// serve handles the connection until it ends.
func (c *conn) serve() {
	c.raw = c.tcp
	c.buf = getBuffer(clientBuffer)
	defer func() {
		if !c.handedOver {
			c.buf.free()
			_ = run.CloseWithin(c.nc, c.e.cfg.WriteTime)
		}
	}()
	c.trusted = hasAddress(c.e.cfg.Trusted, c.client)
	if hasAddress(c.e.cfg.ProxyFrom, c.client) {
		if err := c.readProxy(); err != nil {
			c.e.cfg.Log.Debug("read the PROXY protocol", "client", c.client, "err", err)
			return
		}
		if c.trusted = hasAddress(c.e.cfg.Trusted, c.client); !c.trusted && !c.e.countClient(c, c.client) {
			return
		}
	}
	c.prepareClientFields()
	if c.secure {
		if !c.handshake() {
			return
		}
	}
	for c.serveNext() {
	}
}

func hasAddress(all []netip.Prefix, a netip.Addr) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// prepareClientFields prepares the header lines that describe the client to backends.
func (c *conn) prepareClientFields() {
	c.ip = c.client.AppendTo(nil)
	proto := "http"
	if c.secure {
		proto = "https"
	}
	c.protoLine = []byte("\r\nX-Forwarded-Proto: " + proto)
	c.portLine = []byte("\r\nX-Forwarded-Port: " + strconv.Itoa(c.port))
}

// handshake performs the TLS handshake. It returns false if the connection is finished: the handshake failed, or HTTP/2
// was served.
func (c *conn) handshake() bool {
	under := &bufferedConn{Conn: c.nc, readLimit: c.e.cfg.WriteTime}
	hasPrefix := c.buf.r < c.buf.w
	if hasPrefix {
		under.buf = c.buf
	}
	secure := tls.Server(under, c.entry.tls)
	_ = c.nc.SetDeadline(time.Now().Add(c.e.cfg.HandshakeTime))
	if err := secure.Handshake(); err != nil {
		c.e.counters.handshakes.Add(1)
		return false
	}
	_ = c.nc.SetDeadline(time.Time{})
	c.nc, c.tcp = secure, nil
	if hasPrefix { // the prefix was read, so its buffer was freed
		c.buf = getBuffer(clientBuffer)
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		c.e.passToHTTP2(secure, c)
		return false
	}
	return true
}

const prefaceHTTP2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// mayBeHTTP2 reports whether the first data of a plaintext connection is the preface of HTTP/2 with prior knowledge, or
// a part of it.
func (c *conn) mayBeHTTP2(data []byte) bool {
	n := min(len(data), len(prefaceHTTP2))
	return !c.secure && c.requests == 0 && string(data[:n]) == prefaceHTTP2[:n]
}

// fill reads more data into the buffer.
func (c *conn) fill(wait time.Duration) error {
	if !c.buf.makeRoom(c.e.cfg.MaxHead) {
		return errHeadSize
	}
	if !c.isLast && c.readDeadline.extend(c.e.clock(), wait) {
		_ = c.nc.SetReadDeadline(c.e.timeAt(c.readDeadline.at))
		if c.e.closing.Load() && c.idle.Load() {
			return os.ErrDeadlineExceeded // the engine has set an expired deadline, which was just overwritten
		}
	}
	return c.readSome()
}

func (c *conn) readSome() error {
	n, err := c.nc.Read(c.buf.b[c.buf.w:])
	if c.buf.w += n; n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// serveNext handles the next request. It returns false if the connection must be closed.
func (c *conn) serveNext() bool {
	size, ok := c.readHead()
	if !ok {
		return false
	}
	gen := c.e.startRequest()
	defer gen.Add(-1)
	c.requests++
	c.start, c.status, c.sent, c.rule, c.backend, c.ruleDeadline = c.e.clock(), 0, 0, nil, nil, 0
	c.ended = !c.req.isPersistent() || c.isDraining()
	c.buf.r += size
	c.handleRequest()
	c.record()
	c.keepPipelined()
	return !c.ended
}

// keepPipelined moves the data that was read after a body to the start of the buffer, for the next request. The request
// head must no longer be needed.
func (c *conn) keepPipelined() {
	if c.headBuffer != nil {
		c.headBuffer.free()
		c.headBuffer = nil
	}
	if len(c.afterBody) == 0 {
		return
	}
	if len(c.afterBody) > len(c.buf.b) {
		c.buf.free()
		c.buf = getBuffer(copyBuffer)
	}
	c.buf.r, c.buf.w = 0, copy(c.buf.b, c.afterBody)
	c.afterBody = c.afterBody[:0]
}

// readHead reads a request head. It returns false if there is none: an error response was sent, the client is gone, or
// the connection was handed over because the client speaks HTTP/2.
func (c *conn) readHead() (int, bool) {
	c.idle.Store(true)
	defer c.idle.Store(false)
	if c.requests > 0 {
		c.markIdle()
	}
	parsed, first := 0, int64(0)
	for {
		b := c.buf.bytes()
		if c.mayBeHTTP2(b) {
			if len(b) >= len(prefaceHTTP2) {
				c.idle.Store(false)
				if c.markBusy() {
					c.e.passToHTTP2(&bufferedConn{Conn: c.nc, buf: c.buf, readLimit: c.e.cfg.WriteTime}, c)
				}
				return 0, false
			}
		} else if len(b) > parsed && bytes.IndexByte(b[parsed:], '\n') >= 0 {
			size, err := c.req.parse(b)
			switch {
			case err == nil:
				return size, c.markBusy()
			case err != errIncomplete:
				c.rejectMalformed(err)
				return 0, false
			}
			parsed = len(b)
		}
		if c.e.closing.Load() && c.buf.r == c.buf.w && !c.canStillArrive() {
			return 0, false
		}
		wait := c.e.cfg.Idle
		if c.buf.r < c.buf.w {
			now := c.e.clock()
			if first == 0 {
				first = now
			}
			// A client that sends byte by byte gets no extra time.
			if c.readDeadline.set(first + int64(c.e.cfg.HeadTime)) {
				_ = c.nc.SetReadDeadline(c.e.timeAt(c.readDeadline.at))
			}
			wait = 0
		}
		err := c.readMore(wait)
		var timeout net.Error
		switch {
		case err == nil:
		case errors.Is(err, errHeadSize):
			c.rejectMalformed(errHeadSize)
			return 0, false
		case errors.As(err, &timeout) && timeout.Timeout() && c.buf.r < c.buf.w:
			c.rejectMalformed(&statusError{408, "the head took too long"})
			return 0, false
		case isTimeout(err) && c.e.closing.Load() && !c.isLast: // woken up by the closing engine
		default:
			return 0, false
		}
	}
}

// readMore is fill, but keeps the current deadline if wait is 0.
func (c *conn) readMore(wait time.Duration) error {
	if wait > 0 {
		return c.fill(wait)
	}
	if !c.buf.makeRoom(c.e.cfg.MaxHead) {
		return errHeadSize
	}
	return c.readSome()
}

// canStillArrive reports whether a request may still arrive when the engine closes: one whose data is already here, or
// the first of a recently accepted connection. It must arrive within closeWait.
func (c *conn) canStillArrive() bool {
	if c.isLast || c.requests > 0 && (c.raw == nil || peek(c.raw) != peekData) {
		return false
	}
	c.isLast = true
	c.readDeadline.set(c.e.clock() + int64(closeWait))
	_ = c.nc.SetReadDeadline(c.e.timeAt(c.readDeadline.at))
	return true
}

const closeWait = time.Second

// write sends b to the client.
func (c *conn) write(b []byte, wait time.Duration) error {
	if c.writeDeadline.extend(c.e.clock(), wait) {
		_ = c.nc.SetWriteDeadline(c.e.timeAt(c.writeDeadline.at))
	}
	_, err := c.nc.Write(b)
	return err
}

// rejectMalformed responds to a request that could not be parsed, and ends the connection.
func (c *conn) rejectMalformed(cause *statusError) {
	gen := c.e.startRequest()
	defer gen.Add(-1)
	c.start, c.sent, c.rule, c.backend, c.ended = c.e.clock(), 0, nil, nil, true
	c.req.method, c.req.target, c.req.host, c.req.minor = nil, nil, nil, 1
	c.fail(cause.status, cause.reason)
	c.record()
}

// fail sends an error response.
func (c *conn) fail(status int, reason string) {
	c.status = status
	c.out = appendError(c.out[:0], status, reason, c.ended || c.req.minor == 0, string(c.req.method) == "HEAD")
	if c.write(c.out, writeTimeout) != nil {
		c.ended = true
	}
	if c.ended {
		c.discardInput()
	}
}

const writeTimeout = time.Minute

// discardInput reads for a moment from a client that is still sending. Closing a connection with unread data resets it,
// and the response may be lost.
func (c *conn) discardInput() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.nc, 256<<10)
}
