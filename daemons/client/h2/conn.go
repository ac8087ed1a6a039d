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
	// window is how much of an answer the server may send before it is read, and connWindow the same for all answers
	// together. Data is buffered per stream at once, so connWindow only bounds what is in transit.
	window     = 1 << 20
	connWindow = 1 << 30
	// stuck is how long a write may block before the connection fails.
	stuck = 30 * time.Second
	// mostKept is the maximum size in bytes of buffers that are reused.
	mostKept = 64 << 10
	// mostHeaders is the maximum size in bytes of an answer's headers.
	mostHeaders = 1 << 20
	newest      = math.MaxInt32
)

// conn is a connection.
type conn struct {
	t     *Transport
	nc    net.Conn
	heads heads // guarded by mu

	// The following fields belong to the reader goroutine.
	decoder   *hpack.Decoder
	fields    []hpack.HeaderField
	fragments []byte // of a header block
	ended     bool   // whether the answer ends with the block
	names     names

	mu       sync.Mutex
	out      []byte // buffered for writing
	spare    []byte // the previous buffer, for reuse
	flushing bool
	deadline time.Time // for writing; belongs to the flushing goroutine
	next     uint32    // id of the next stream
	streams  map[uint32]*stream
	going    bool  // no further requests are accepted
	mute     error // why nothing can be written any more; reading continues
	failed   error
	heard    time.Time
	asked    time.Time   // when a ping was sent; zero if it was answered
	idle     time.Time   // since when there are no requests
	timer    *time.Timer // for the next look; nil if there is nothing to check

	room, initial int64 // send windows: of the connection, and of a new stream
	maxFrame      int
	most          uint32 // maximum number of concurrent streams
	owed          int    // received bytes that are not returned to the connection's window yet
}

func newConn(t *Transport, nc net.Conn) *conn {
	now := time.Now()
	c := &conn{
		t: t, nc: nc, next: 1, streams: map[uint32]*stream{}, names: names{},
		room: 65535, initial: 65535, maxFrame: 16384, most: 100, heard: now, idle: now,
	}
	c.heads.open()
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { c.fields = append(c.fields, f) })
	c.decoder.SetMaxStringLength(mostHeaders)
	return c
}

// greet sends the connection preface. The server's settings are read with the other frames.
func (c *conn) greet() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, http2.ClientPreface...)
	c.frame(http2.FrameSettings, 0, 0, 18)
	c.setting(http2.SettingEnablePush, 0)
	c.setting(http2.SettingInitialWindowSize, window)
	c.setting(http2.SettingMaxHeaderListSize, mostHeaders)
	c.windowUpdate(0, connWindow-65535)
	c.flush(false)
	if c.t.Idle > 0 {
		c.watch(c.t.Idle)
	}
	return cmp.Or(c.failed, c.mute)
}

func (c *conn) frame(kind http2.FrameType, flags http2.Flags, id uint32, length int) {
	c.out = append(c.out, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	c.out = binary.BigEndian.AppendUint32(c.out, id)
}

func (c *conn) setting(id http2.SettingID, value uint32) {
	c.out = binary.BigEndian.AppendUint16(c.out, uint16(id))
	c.out = binary.BigEndian.AppendUint32(c.out, value)
}

func (c *conn) windowUpdate(id uint32, more int) {
	c.frame(http2.FrameWindowUpdate, 0, id, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(more))
}

func (c *conn) reset(id uint32, code http2.ErrCode) {
	c.frame(http2.FrameRSTStream, 0, id, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

func (c *conn) hasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takes()
}

// takes reports whether another request may be sent. The caller holds c.mu.
func (c *conn) takes() bool { return !c.going && c.failed == nil && uint32(len(c.streams)) < c.most }

// begin sends a request, or its start. It returns nil if the connection accepts no more requests. small is the body, if
// that was read already.
func (c *conn) begin(r *http.Request, body io.ReadCloser, small []byte) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.takes() {
		return nil, nil
	}
	head, err := c.heads.of(r, body != nil)
	if err != nil {
		return nil, err
	}
	s := &stream{c: c, id: c.next, request: r, room: c.initial, change: make(chan struct{}, 1)}
	if c.next += 2; c.next >= newest-2 {
		c.going = true // stream ids are used up
	}
	c.streams[s.id] = s
	c.headers(s.id, head, body == nil)
	switch {
	case body == nil:
		s.sent = true
	case small != nil && int64(len(small)) <= min(c.room, s.room):
		c.data(s, small, true)
	default:
		s.sending = make(chan struct{}, 1)
		go s.send(body, small)
	}
	if len(c.streams) == 1 && c.t.Silence > 0 {
		c.heard, c.asked = time.Now(), time.Time{} // it had nothing to send before
		c.watch(c.t.Silence)
	}
	c.flush(len(c.streams) > 1)
	return s, nil
}

// headers buffers a header block. The caller holds c.mu.
func (c *conn) headers(id uint32, block []byte, last bool) {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if last {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), c.maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.frame(kind, flags, id, n)
		c.out = append(c.out, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// data buffers a part of a request's body that fits the send windows. The caller holds c.mu.
func (c *conn) data(s *stream, part []byte, last bool) {
	c.room -= int64(len(part))
	s.room -= int64(len(part))
	for {
		n := min(len(part), c.maxFrame)
		flags := http2.Flags(0)
		if last && n == len(part) {
			flags, s.sent = http2.FlagDataEndStream, true
		}
		c.frame(http2.FrameData, flags, s.id, n)
		c.out = append(c.out, part[:n]...)
		if part = part[n:]; len(part) == 0 {
			return
		}
	}
}

// flush writes the buffer, unless another goroutine is doing so. That goroutine also writes what is added meanwhile.
// The caller holds c.mu, which is released during writes. together first lets other goroutines add to the buffer.
func (c *conn) flush(together bool) {
	if c.flushing || len(c.out) == 0 || c.failed != nil || c.mute != nil {
		return
	}
	c.flushing = true
	if together {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for len(c.out) > 0 && c.failed == nil && c.mute == nil {
		buf := c.out
		c.out, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		err := c.write(buf)
		c.mu.Lock()
		if cap(buf) <= mostKept {
			c.spare = buf
		}
		if err != nil {
			c.silence(err)
		}
	}
	c.flushing = false
}

// lastWords is how long to continue reading after writing has failed.
const lastWords = time.Second

// silence gives up writing. A server that closes a connection may have sent answers before. The caller holds c.mu.
func (c *conn) silence(why error) {
	c.mute, c.going, c.out = why, true, nil
	_ = c.nc.SetReadDeadline(time.Now().Add(lastWords)) // it fails only if reading fails too
}

func (c *conn) write(buf []byte) error {
	// Setting a deadline costs as much as writing a small record, so set it for many writes.
	if now := time.Now(); c.deadline.Sub(now) < stuck/2 {
		c.deadline = now.Add(stuck)
		if err := c.nc.SetWriteDeadline(c.deadline); err != nil {
			return err
		}
	}
	_, err := c.nc.Write(buf)
	return err
}

// watch schedules the next look within a time. The caller holds c.mu.
func (c *conn) watch(in time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(in, c.look)
		return
	}
	c.timer.Reset(in)
}

// look pings a server that owes answers and sends nothing. It closes a connection that has been idle for too long.
func (c *conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	silent := now.Sub(c.heard)
	switch {
	case c.failed != nil:
	case len(c.streams) == 0:
		c.asked = time.Time{}
		switch left := c.t.Idle - now.Sub(c.idle); {
		case c.t.Idle == 0:
		case left <= 0:
			c.fail(errors.New("it was idle"))
		default:
			c.watch(left)
		}
	case c.t.Silence == 0:
	case silent < c.t.Silence:
		c.asked = time.Time{}
		c.watch(c.t.Silence - silent)
	case c.asked.IsZero():
		c.asked = now
		c.frame(http2.FramePing, 0, 0, 8)
		c.out = append(c.out, make([]byte, 8)...)
		c.watch(c.t.Grace)
		c.flush(false)
	default:
		c.fail(errors.New("the server does not say whether it is there"))
	}
}

// fail closes the connection and ends all its streams. The caller holds c.mu.
func (c *conn) fail(why error) {
	if c.failed != nil {
		return
	}
	c.failed = why
	if c.timer != nil {
		c.timer.Stop()
	}
	_ = c.nc.Close() // nothing more has to be sent
	lost := &Lost{why}
	for _, s := range c.streams {
		c.end(s, lost)
	}
	go c.t.forget(c) // in a goroutine, because the transport's lock must be taken before c.mu
}

// end ends a stream. The caller holds c.mu.
func (c *conn) end(s *stream, why error) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	if !s.sent && why == io.EOF && c.failed == nil {
		c.reset(s.id, http2.ErrCodeNo) // the server has answered and does not need the rest of the body
	}
	s.end(why)
	if len(c.streams) > 0 || c.failed != nil {
		return
	}
	if c.going {
		c.fail(errors.New("the server takes no further requests on it"))
		return
	}
	if c.idle = time.Now(); c.t.Idle > 0 && c.t.Silence == 0 {
		c.watch(c.t.Idle)
	}
}

// retire closes the connection if it is idle.
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) == 0 {
		c.fail(errors.New("it was idle"))
	}
}

// Lost means that a connection ended before an answer was complete. It is unknown whether the server carried out the
// request.
type Lost struct{ Why error }

// Error returns the text by which clients recognize that a request may be repeated.
func (l *Lost) Error() string { return fmt.Sprintf("http2: client connection lost: %v", l.Why) }

// Unwrap returns the cause.
func (l *Lost) Unwrap() error { return l.Why }
