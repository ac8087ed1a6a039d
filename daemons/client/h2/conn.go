package h2

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// streamWindow is how much of an answer the server may send before it is read, and connWindow the same for all
	// answers together. Data is buffered per stream at once, so connWindow only bounds what is in transit.
	streamWindow = 1 << 20
	connWindow   = 1 << 30
	// writeTimeout is how long a write may block before the connection fails.
	writeTimeout = 30 * time.Second
	// maxKeptBuffer is the maximum size in bytes of buffers that are reused.
	maxKeptBuffer = 64 << 10
	// maxHeaderBytes is the maximum size in bytes of an answer's headers.
	maxHeaderBytes = 1 << 20
	maxStreamID    = math.MaxInt32
)

// conn is a connection.
type conn struct {
	t       *Transport
	nc      net.Conn
	encoder headerEncoder // guarded by mu

	// The following fields belong to the reader goroutine.
	decoder     *hpack.Decoder
	fields      []hpack.HeaderField
	fragments   []byte // of a header block
	endsStream  bool   // whether the answer ends with the block
	headerNames headerNames

	mu           sync.Mutex
	outBuffer    []byte // buffered for writing
	spareBuffer  []byte // the previous buffer, for reuse
	flushing     bool
	deadline     time.Time // for writing; belongs to the flushing goroutine
	nextStreamID uint32    // id of the next stream
	streams      map[uint32]*stream
	isClosing    bool  // no further requests are accepted
	writeErr     error // why nothing can be written any more; reading continues
	err          error
	lastReceived time.Time
	pingSentAt   time.Time   // when a ping was sent; zero if it was answered
	idleSince    time.Time   // since when there are no requests
	timer        *time.Timer // for the next checkIdle; nil if there is nothing to check

	sendWindow, initialWindow int64 // send windows: of the connection, and of a new stream
	maxFrame                  int
	maxStreams                uint32 // maximum number of concurrent streams
	unacknowledged            int    // received bytes that are not returned to the connection's window yet
}

func newConn(t *Transport, nc net.Conn) *conn {
	now := time.Now()
	c := &conn{
		t: t, nc: nc, nextStreamID: 1, streams: map[uint32]*stream{}, headerNames: headerNames{},
		sendWindow: 65535, initialWindow: 65535, maxFrame: 16384, maxStreams: 100, lastReceived: now, idleSince: now,
	}
	c.encoder.init()
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { c.fields = append(c.fields, f) })
	c.decoder.SetMaxStringLength(maxHeaderBytes)
	return c
}

// writePreface sends the connection preface. The server's settings are read with the other frames.
func (c *conn) writePreface() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outBuffer = append(c.outBuffer, http2.ClientPreface...)
	c.appendFrameHeader(http2.FrameSettings, 0, 0, 18)
	c.appendSetting(http2.SettingEnablePush, 0)
	c.appendSetting(http2.SettingInitialWindowSize, streamWindow)
	c.appendSetting(http2.SettingMaxHeaderListSize, maxHeaderBytes)
	c.appendWindowUpdate(0, connWindow-65535)
	c.flush(false)
	if c.t.Idle > 0 {
		c.scheduleCheck(c.t.Idle)
	}
	return cmp.Or(c.err, c.writeErr)
}

func (c *conn) appendFrameHeader(kind http2.FrameType, flags http2.Flags, id uint32, length int) {
	c.outBuffer = append(c.outBuffer, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	c.outBuffer = binary.BigEndian.AppendUint32(c.outBuffer, id)
}

func (c *conn) appendSetting(id http2.SettingID, value uint32) {
	c.outBuffer = binary.BigEndian.AppendUint16(c.outBuffer, uint16(id))
	c.outBuffer = binary.BigEndian.AppendUint32(c.outBuffer, value)
}

func (c *conn) appendWindowUpdate(id uint32, more int) {
	c.appendFrameHeader(http2.FrameWindowUpdate, 0, id, 4)
	c.outBuffer = binary.BigEndian.AppendUint32(c.outBuffer, uint32(more))
}

func (c *conn) appendReset(id uint32, code http2.ErrCode) {
	c.appendFrameHeader(http2.FrameRSTStream, 0, id, 4)
	c.outBuffer = binary.BigEndian.AppendUint32(c.outBuffer, uint32(code))
}

func (c *conn) hasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acceptsRequests()
}

// acceptsRequests reports whether another request may be sent. The caller holds c.mu.
func (c *conn) acceptsRequests() bool {
	return !c.isClosing && c.err == nil && uint32(len(c.streams)) < c.maxStreams
}

// startStream sends a request, or its start. It returns nil if the connection accepts no more requests. small is the
// body, if that was read already.
func (c *conn) startStream(r *http.Request, body io.ReadCloser, small []byte) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.acceptsRequests() {
		return nil, nil
	}
	head, err := c.encoder.encode(r, body != nil)
	if err != nil {
		return nil, err
	}
	s := &stream{c: c, id: c.nextStreamID, request: r, sendWindow: c.initialWindow, changed: make(chan struct{}, 1)}
	if c.nextStreamID += 2; c.nextStreamID >= maxStreamID-2 {
		c.isClosing = true // stream ids are used up
	}
	c.streams[s.id] = s
	c.bufferHeaders(s.id, head, body == nil)
	switch {
	case body == nil:
		s.isSent = true
	case small != nil && int64(len(small)) <= min(c.sendWindow, s.sendWindow):
		c.bufferData(s, small, true)
	default:
		s.sending = make(chan struct{}, 1)
		go s.send(body, small)
	}
	if len(c.streams) == 1 && c.t.Silence > 0 {
		c.lastReceived, c.pingSentAt = time.Now(), time.Time{} // it had nothing to send before
		c.scheduleCheck(c.t.Silence)
	}
	c.flush(len(c.streams) > 1)
	return s, nil
}

// bufferHeaders buffers a header block. The caller holds c.mu.
func (c *conn) bufferHeaders(id uint32, block []byte, last bool) {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if last {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), c.maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.appendFrameHeader(kind, flags, id, n)
		c.outBuffer = append(c.outBuffer, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// bufferData buffers a part of a request's body that fits the send windows. The caller holds c.mu.
func (c *conn) bufferData(s *stream, part []byte, last bool) {
	c.sendWindow -= int64(len(part))
	s.sendWindow -= int64(len(part))
	for {
		n := min(len(part), c.maxFrame)
		flags := http2.Flags(0)
		if last && n == len(part) {
			flags, s.isSent = http2.FlagDataEndStream, true
		}
		c.appendFrameHeader(http2.FrameData, flags, s.id, n)
		c.outBuffer = append(c.outBuffer, part[:n]...)
		if part = part[n:]; len(part) == 0 {
			return
		}
	}
}

// flush writes the buffer, unless another goroutine is doing so. That goroutine also writes what is added meanwhile.
// The caller holds c.mu, which is released during writes. together first lets other goroutines add to the buffer.
func (c *conn) flush(together bool) {
	if c.flushing || len(c.outBuffer) == 0 || c.err != nil || c.writeErr != nil {
		return
	}
	c.flushing = true
	if together {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for len(c.outBuffer) > 0 && c.err == nil && c.writeErr == nil {
		buf := c.outBuffer
		c.outBuffer, c.spareBuffer = c.spareBuffer[:0], nil
		c.mu.Unlock()
		err := c.write(buf)
		c.mu.Lock()
		if cap(buf) <= maxKeptBuffer {
			c.spareBuffer = buf
		}
		if err != nil {
			c.failWrites(err)
		}
	}
	c.flushing = false
}

// readAfterWriteError is how long to continue reading after writing has failed.
const readAfterWriteError = time.Second

// failWrites gives up writing. A server that closes a connection may have sent answers before. The caller holds c.mu.
func (c *conn) failWrites(why error) {
	c.writeErr, c.isClosing, c.outBuffer = why, true, nil
	_ = c.nc.SetReadDeadline(time.Now().Add(readAfterWriteError)) // it fails only if reading fails too
}

func (c *conn) write(buf []byte) error {
	// Setting a deadline costs as much as writing a small record, so set it for many writes.
	if now := time.Now(); c.deadline.Sub(now) < writeTimeout/2 {
		c.deadline = now.Add(writeTimeout)
		if err := c.nc.SetWriteDeadline(c.deadline); err != nil {
			return err
		}
	}
	_, err := c.nc.Write(buf)
	return err
}

// scheduleCheck schedules the next call of checkIdle within a time. The caller holds c.mu.
func (c *conn) scheduleCheck(in time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(in, c.checkIdle)
		return
	}
	c.timer.Reset(in)
}

// checkIdle pings a server that owes answers and sends nothing. It closes a connection that has been idle for too long.
func (c *conn) checkIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	silent := now.Sub(c.lastReceived)
	switch {
	case c.err != nil:
	case len(c.streams) == 0:
		c.pingSentAt = time.Time{}
		switch left := c.t.Idle - now.Sub(c.idleSince); {
		case c.t.Idle == 0:
		case left <= 0:
			c.fail(errors.New("it was idle"))
		default:
			c.scheduleCheck(left)
		}
	case c.t.Silence == 0:
	case silent < c.t.Silence:
		c.pingSentAt = time.Time{}
		c.scheduleCheck(c.t.Silence - silent)
	case c.pingSentAt.IsZero():
		c.pingSentAt = now
		c.appendFrameHeader(http2.FramePing, 0, 0, 8)
		c.outBuffer = append(c.outBuffer, make([]byte, 8)...)
		c.scheduleCheck(c.t.Grace)
		c.flush(false)
	default:
		c.fail(errors.New("the server does not say whether it is there"))
	}
}

// fail closes the connection and ends all its streams. The caller holds c.mu.
func (c *conn) fail(why error) {
	if c.err != nil {
		return
	}
	c.err = why
	if c.timer != nil {
		c.timer.Stop()
	}
	_ = c.nc.Close() // nothing more has to be sent
	lost := &ConnectionLostError{why}
	for _, s := range c.streams {
		c.endStream(s, lost)
	}
	go c.t.removeConn(c) // in a goroutine, because the transport's lock must be taken before c.mu
}

// endStream ends a stream. The caller holds c.mu.
func (c *conn) endStream(s *stream, why error) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	if !s.isSent && why == io.EOF && c.err == nil {
		c.appendReset(s.id, http2.ErrCodeNo) // the server has answered and does not need the rest of the body
	}
	s.end(why)
	if len(c.streams) > 0 || c.err != nil {
		return
	}
	if c.isClosing {
		c.fail(errors.New("the server takes no further requests on it"))
		return
	}
	if c.idleSince = time.Now(); c.t.Idle > 0 && c.t.Silence == 0 {
		c.scheduleCheck(c.t.Idle)
	}
}

// closeIfIdle closes the connection if it is idle.
func (c *conn) closeIfIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) == 0 {
		c.fail(errors.New("it was idle"))
	}
}

// ConnectionLostError means that a connection ended before an answer was complete. It is unknown whether the server
// carried out the request.
type ConnectionLostError struct{ Cause error }

// Error returns the text by which clients recognize that a request may be repeated.
func (l *ConnectionLostError) Error() string {
	return fmt.Sprintf("http2: client connection lost: %v", l.Cause)
}

// Unwrap returns the cause.
func (l *ConnectionLostError) Unwrap() error { return l.Cause }
