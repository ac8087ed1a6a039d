package rpc

import (
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
	// mostPending is how many bytes may wait to be written before further calls are refused.
	mostPending = 1 << 20
	// window is how many bytes of responses the server may send ahead, for the connection and for each stream.
	window = 4 << 20
	// stuck is how long the server may accept no written data.
	stuck = 10 * time.Second
	// silence is how long a server that owes a response may be silent before it gets a ping. patience is how long it
	// may take to answer the ping.
	silence  = 10 * time.Second
	patience = 5 * time.Second
	frame    = 9 // length of a frame header
	newest   = 1<<31 - 1
)

// conn is a connection.
type conn struct {
	nc        net.Conn
	authority string
	closed    chan struct{} // closed when the connection has failed

	// The fields from here to said are used only by the reading goroutine.
	fields    *hpack.Decoder
	fragments []byte  // of a header block
	ended     bool    // whether the header block ends the stream
	said      outcome // the status in the header block

	mu       sync.Mutex
	out      []byte // write buffer
	spare    []byte // buffer to reuse
	flushing bool
	deadline time.Time // write deadline; used only by the writing goroutine
	heads    heads
	next     uint32 // next stream ID
	calls    map[uint32]*call
	streams  map[uint32]*Stream
	going    bool // no further calls begin
	failed   error
	heard    time.Time
	asked    time.Time // when a ping was sent; zero if it was answered

	room, initial int64 // the server's flow-control windows: of the connection, and initially of each stream
	maxFrame      int
	most          uint32 // maximum number of concurrent calls
	owed          int    // bytes not yet given back to the connection's window
}

func newConn(nc net.Conn, scheme, authority string, headers []Header) *conn {
	c := &conn{
		nc: nc, authority: authority, next: 1, calls: map[uint32]*call{}, streams: map[uint32]*Stream{},
		closed: make(chan struct{}),
		room:   65535, initial: 65535, maxFrame: 16384, most: 100, heard: time.Now(),
	}
	c.fields = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch f.Name {
		case "grpc-status":
			c.said.code = f.Value
		case "grpc-message":
			c.said.text = f.Value
		}
	})
	c.fields.SetMaxStringLength(64 << 10)
	c.heads.open(scheme, authority, headers)
	return c
}

// greet sends the connection preface. read handles the server's preface with all other frames.
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

// begin sends a call. It returns nil if that is not possible without waiting.
func (c *conn) begin(ctx context.Context, method string, message []byte) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(len(message))
	if c.going || c.failed != nil || uint32(len(c.calls)+len(c.streams)) >= c.most || size > min(c.room, c.initial) ||
		len(c.out)+len(message) > mostPending {
		return nil
	}
	k := calls.Get().(*call)
	k.id = c.say(method, nil, left(ctx), message, true)
	c.calls[k.id] = k
	c.flush(len(c.calls) > 1)
	return k
}

// left returns how much time a call has; 0 if there is no limit.
func left(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), time.Millisecond)
	}
	return 0
}

// say appends the headers and the first message of a call to the buffer. all ends the request. The caller holds c.mu.
func (c *conn) say(method string, headers []Header, left time.Duration, message []byte, all bool) (id uint32) {
	id = c.next
	if c.next += 2; c.next >= newest-2 {
		c.going = true // the stream IDs are used up
	}
	head := c.heads.head(method, headers, left)
	c.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, id, len(head))
	c.out = append(c.out, head...)
	c.message(id, message, all)
	return id
}

// message appends a message, for which the window has room. The caller holds c.mu.
func (c *conn) message(id uint32, message []byte, last bool) {
	c.room -= int64(len(message))
	for {
		n := min(len(message), c.maxFrame)
		flags := http2.Flags(0)
		if last && n == len(message) {
			flags = http2.FlagDataEndStream
		}
		c.frame(http2.FrameData, flags, id, n)
		c.out = append(c.out, message[:n]...)
		if message = message[n:]; len(message) == 0 {
			return
		}
	}
}

// abandon cancels a call whose response is not needed any more. It returns false if the call has ended already.
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

// flush writes the buffer. If another goroutine is writing, it leaves the new data to that goroutine. The caller holds
// c.mu, and flush releases it while writing. With together, other goroutines get a chance to add their data first.
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
	// Setting a deadline costs as much as a small record, so one deadline covers many writes.
	if now := time.Now(); c.deadline.Sub(now) < stuck/2 {
		c.deadline = now.Add(stuck)
		if err := c.nc.SetWriteDeadline(c.deadline); err != nil {
			return err
		}
	}
	_, err := c.nc.Write(buf)
	return err
}

// keep pings a server that owes responses and is silent.
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
	case len(c.calls)+len(c.streams) == 0 || now.Sub(c.heard) < silence:
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

// fail ends the connection and all its calls.
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
	_ = c.nc.Close() // nothing more is sent
	ended := status.Errorf(codes.Unavailable, "the connection to %s has ended: %v", c.authority, why)
	for _, k := range c.calls {
		c.end(k, ended)
	}
	for _, s := range c.streams {
		c.endStream(s, ended)
	}
}

// end completes a call. The caller holds c.mu.
func (c *conn) end(k *call, failed error) {
	delete(c.calls, k.id)
	k.failed = failed
	k.done <- struct{}{}
	c.close()
}

// close closes a connection that accepts no further calls, once all calls have ended. The caller holds c.mu.
func (c *conn) close() {
	if c.going && len(c.calls)+len(c.streams) == 0 && c.failed == nil {
		c.failLocked(errors.New("the server takes no further calls on it"))
	}
}
