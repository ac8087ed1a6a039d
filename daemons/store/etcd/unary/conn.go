package unary

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// mostPending is how much waits to be written before calls are made elsewhere.
	mostPending = 1 << 20
	// window is how much of answers the server may send ahead: on the connection, and of one answer.
	window = 4 << 20
	// stuck is how long the server may take nothing of what is written.
	stuck = 10 * time.Second
	// silence is after how long of saying nothing a server that owes an answer is asked whether it is there, and patience
	// how long it may take to say so.
	silence  = 10 * time.Second
	patience = 5 * time.Second
	frame    = 9 // length of a frame's head
	newest   = 1<<31 - 1
)

// conn is a connection.
type conn struct {
	nc        net.Conn
	scheme    string
	authority string
	headers   []Header
	closed    chan struct{} // when it has failed

	// What follows belongs to the reader.
	fields    *hpack.Decoder
	fragments []byte // of a block of headers
	ended     bool   // whether the answer ends with it

	mu       sync.Mutex
	out      []byte // what is to be written
	spare    []byte // what was written before
	flushing bool
	deadline time.Time // of writing; belongs to who writes
	block    bytes.Buffer
	encoder  *hpack.Encoder
	next     uint32 // stream
	calls    map[uint32]*call
	going    bool // no further calls
	failed   error
	heard    time.Time
	asked    time.Time // whether the server is there; zero: it has answered

	room, initial int64 // what the server takes: on the connection, and of a new stream
	maxFrame      int
	most          uint32 // calls at once
	owed          int    // of what has come, not given back to the connection's window
}

func newConn(nc net.Conn, scheme, authority string, headers []Header) *conn {
	c := &conn{
		nc: nc, scheme: scheme, authority: authority, headers: headers, next: 1, calls: map[uint32]*call{}, closed: make(chan struct{}),
		room: 65535, initial: 65535, maxFrame: 16384, most: 100, heard: time.Now(),
	}
	c.fields = hpack.NewDecoder(4096, nil)
	c.fields.SetMaxStringLength(64 << 10)
	c.encoder = hpack.NewEncoder(&c.block)
	return c
}

// greet sends the preface. The server's own is read with everything else.
func (c *conn) greet(ctx context.Context) error {
	c.out = append(c.out, http2.ClientPreface...)
	c.frame(http2.FrameSettings, 0, 0, 12)
	c.setting(http2.SettingEnablePush, 0)
	c.setting(http2.SettingInitialWindowSize, window)
	c.windowUpdate(0, window-65535)
	deadline, _ := ctx.Deadline()
	if err := c.nc.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
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

func (c *conn) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.going && c.failed == nil
}

// begin sends a call, nil if that cannot be done at once.
func (c *conn) begin(ctx context.Context, method string, message []byte) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(len(message))
	if c.going || c.failed != nil || uint32(len(c.calls)) >= c.most || size > min(c.room, c.initial) || len(c.out)+len(message) > mostPending {
		return nil
	}
	k := calls.Get().(*call)
	k.id = c.next
	c.calls[k.id] = k
	if c.next += 2; c.next >= newest-2 {
		c.going = true // the numbers are used up
	}
	c.room -= size
	c.head(ctx, method)
	head := c.block.Bytes()
	c.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, k.id, len(head))
	c.out = append(c.out, head...)
	for {
		n := min(len(message), c.maxFrame)
		flags := http2.Flags(0)
		if n == len(message) {
			flags = http2.FlagDataEndStream
		}
		c.frame(http2.FrameData, flags, k.id, n)
		c.out = append(c.out, message[:n]...)
		if message = message[n:]; len(message) == 0 {
			break
		}
	}
	c.flush(len(c.calls) > 1)
	return k
}

// head encodes a call's headers, which the server remembers from one to the next but for the time that is left.
func (c *conn) head(ctx context.Context, method string) {
	c.block.Reset()
	field := func(name, value string, passing bool) {
		// It fails only when its buffer does.
		_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: passing})
	}
	field(":method", "POST", false)
	field(":scheme", c.scheme, false)
	field(":path", method, false)
	field(":authority", c.authority, false)
	field("content-type", "application/grpc", false)
	field("te", "trailers", false)
	for _, h := range c.headers {
		field(h.Name, h.Value, false)
	}
	if deadline, ok := ctx.Deadline(); ok {
		field("grpc-timeout", timeout(time.Until(deadline)), true)
	}
}

// abandon tells the server that nobody waits for a call's answer; false if that is complete.
func (c *conn) abandon(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.id] != k {
		return false
	}
	delete(c.calls, k.id)
	if c.failed == nil {
		c.reset(k.id, http2.ErrCodeCancel)
		c.flush(false)
	}
	return true
}

// flush writes what there is, unless somebody is at it: who adds something leaves it to that one. The lock is held, and let
// go while writing. together has others who are about to say something say it first.
func (c *conn) flush(together bool) {
	if c.flushing || len(c.out) == 0 || c.failed != nil {
		return
	}
	c.flushing = true
	if together {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for len(c.out) > 0 && c.failed == nil {
		buf := c.out
		c.out, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		err := c.write(buf)
		c.mu.Lock()
		if cap(buf) <= mostKept {
			c.spare = buf
		}
		if err != nil {
			c.failLocked(err)
		}
	}
	c.flushing = false
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

// keep finds out whether a server that owes answers is still there.
func (c *conn) keep() {
	tick := time.NewTicker(patience / 2)
	defer tick.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-tick.C:
		}
		c.ask(time.Now())
	}
}

func (c *conn) ask(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.calls) == 0 || now.Sub(c.heard) < silence:
		c.asked = time.Time{}
	case c.asked.IsZero():
		c.asked = now
		c.frame(http2.FramePing, 0, 0, 8)
		c.out = append(c.out, make([]byte, 8)...)
		c.flush(false)
	case now.Sub(c.asked) >= patience:
		c.failLocked(errors.New("the server does not answer"))
	}
}

// fail ends the connection, and all calls on it.
func (c *conn) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(why)
}

func (c *conn) failLocked(why error) {
	if c.failed != nil {
		return
	}
	c.failed = why
	close(c.closed)
	_ = c.nc.Close() // nothing more is to be said
	for _, k := range c.calls {
		c.end(k, status.Errorf(codes.Unavailable, "the connection to %s has ended: %v", c.authority, why))
	}
}

// end completes a call. The lock is held.
func (c *conn) end(k *call, failed error) {
	delete(c.calls, k.id)
	k.failed = failed
	k.done <- struct{}{}
	if c.going && len(c.calls) == 0 && c.failed == nil {
		c.failLocked(errors.New("the server takes no further calls on it"))
	}
}
