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
	// window is how much of an answer the server may send ahead of who reads it, and connWindow of all of them
	// together: what comes is put where it belongs at once, so that this bounds nothing but what is under way.
	window     = 1 << 20
	connWindow = 1 << 30
	// stuck is how long the server may take nothing of what is written.
	stuck = 30 * time.Second
	// mostKept is how large buffers may be that are used again.
	mostKept = 64 << 10
	// mostHeaders is how large the headers of an answer may be.
	mostHeaders = 1 << 20
	newest      = math.MaxInt32
)

// conn is a connection.
type conn struct {
	t     *Transport
	nc    net.Conn
	heads heads // belongs to who holds the lock

	// What follows belongs to the reader.
	decoder   *hpack.Decoder
	fields    []hpack.HeaderField
	fragments []byte // of a block of headers
	ended     bool   // whether the answer ends with it
	names     names

	mu       sync.Mutex
	out      []byte // what is to be written
	spare    []byte // what was written before
	flushing bool
	deadline time.Time // of writing; belongs to who writes
	next     uint32    // stream
	streams  map[uint32]*stream
	going    bool  // no further requests
	mute     error // why nothing can be written any more; what has come is still read
	failed   error
	heard    time.Time
	asked    time.Time   // whether the server is there; zero: it has answered
	idle     time.Time   // since when nothing is asked
	timer    *time.Timer // of what is to be looked after; nil: of nothing

	room, initial int64 // what the server takes: on the connection, and of a new stream
	maxFrame      int
	most          uint32 // streams at once
	owed          int    // of what has come, not given back to the connection's window
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

// greet sends the preface. The server's own is read with everything else.
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

// takes reports whether a further request may be made. The lock is held.
func (c *conn) takes() bool { return !c.going && c.failed == nil && uint32(len(c.streams)) < c.most }

// begin sends a request, or the beginning of one; it returns nil if the connection takes none any more. small is the
// body, if that was read.
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
		c.going = true // the numbers are used up
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
		c.heard, c.asked = time.Now(), time.Time{} // it owed nothing before
		c.watch(c.t.Silence)
	}
	c.flush(len(c.streams) > 1)
	return s, nil
}

// headers puts down a block of headers. The lock is held.
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

// data puts down a part of a request's body, for which there is room. The lock is held.
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

// flush writes what there is, unless somebody is at it: who adds something leaves it to that one. The lock is held, and
// let go while writing. together has others who are about to say something say it first.
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

// lastWords is how long a server is listened to that nothing can be said to.
const lastWords = time.Second

// silence gives up writing. A server that closes a connection may have answered before. The lock is held.
func (c *conn) silence(why error) {
	c.mute, c.going, c.out = why, true, nil
	_ = c.nc.SetReadDeadline(time.Now().Add(lastWords)) // it fails only where reading does
}

func (c *conn) write(buf []byte) error {
	// To set a deadline costs as much as a small record: one serves for many.
	if now := time.Now(); c.deadline.Sub(now) < stuck/2 {
		c.deadline = now.Add(stuck)
		if err := c.nc.SetWriteDeadline(c.deadline); err != nil {
			return err
		}
	}
	_, err := c.nc.Write(buf)
	return err
}

// watch has the connection looked after in a while, at the latest. The lock is held.
func (c *conn) watch(in time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(in, c.look)
		return
	}
	c.timer.Reset(in)
}

// look asks a server that owes answers and says nothing whether it is there, and ends a connection on which nothing is
// asked.
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

// fail ends the connection, and all streams on it. The lock is held.
func (c *conn) fail(why error) {
	if c.failed != nil {
		return
	}
	c.failed = why
	if c.timer != nil {
		c.timer.Stop()
	}
	_ = c.nc.Close() // nothing more is to be said
	lost := &Lost{why}
	for _, s := range c.streams {
		c.end(s, lost)
	}
	go c.t.forget(c) // whose lock is taken before this one
}

// end ends a stream. The lock is held.
func (c *conn) end(s *stream, why error) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	if !s.sent && why == io.EOF && c.failed == nil {
		c.reset(s.id, http2.ErrCodeNo) // it has answered, and does not want the rest
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

// retire ends a connection on which nothing is asked.
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) == 0 {
		c.fail(errors.New("it was idle"))
	}
}

// Lost is the end of a connection before an answer was complete. Whether the server has carried the request out is not
// known.
type Lost struct{ Why error }

// Error says so in the words by which clients tell whether to ask again.
func (l *Lost) Error() string { return fmt.Sprintf("http2: client connection lost: %v", l.Why) }

// Unwrap returns why.
func (l *Lost) Unwrap() error { return l.Why }
