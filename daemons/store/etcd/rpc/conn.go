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
	// maxPending is how many bytes may wait to be written before further calls are refused.
	maxPending = 1 << 20
	// windowSize is how many bytes of responses the server may send ahead, for the connection and for each stream.
	windowSize = 4 << 20
	// writeTimeout is how long the server may accept no written data.
	writeTimeout = 10 * time.Second
	// pingAfter is how long a server that owes a response may be silent before it gets a ping. pingTimeout is how long
	// it may take to answer the ping.
	pingAfter       = 10 * time.Second
	pingTimeout     = 5 * time.Second
	frameHeaderSize = 9 // length of a frame header
	maxStreamID     = 1<<31 - 1
)

// conn is a connection.
type conn struct {
	netConn   net.Conn
	authority string
	closed    chan struct{} // closed when the connection has failed

	// The headerDecoder from here to said are used only by the reading goroutine.
	headerDecoder *hpack.Decoder
	fragments     []byte  // of a header block
	endsStream    bool    // whether the header block ends the stream
	blockStatus   outcome // the status in the header block

	mu         sync.Mutex
	output     []byte // write buffer
	spare      []byte // buffer to reuse
	flushing   bool
	deadline   time.Time // write deadline; used only by the writing goroutine
	headers    headerEncoder
	nextStream uint32 // next stream ID
	calls      map[uint32]*call
	streams    map[uint32]*Stream
	isClosing  bool // no further calls begin
	failed     error
	lastReadAt time.Time
	pingedAt   time.Time // when a ping was sent; zero if it was answered

	sendWindow, initial int64 // the server's flow-control windows: of the connection, and initially of each stream
	maxFrame            int
	maxCalls            uint32 // maximum number of concurrent calls
	unreturned          int    // bytes not yet given back to the connection's window
}

func newConn(nc net.Conn, scheme, authority string, headers []Header) *conn {
	c := &conn{
		netConn: nc, authority: authority, nextStream: 1, calls: map[uint32]*call{}, streams: map[uint32]*Stream{},
		closed:     make(chan struct{}),
		sendWindow: 65535, initial: 65535, maxFrame: 16384, maxCalls: 100, lastReadAt: time.Now(),
	}
	c.headerDecoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch f.Name {
		case "grpc-status":
			c.blockStatus.code = f.Value
		case "grpc-message":
			c.blockStatus.text = f.Value
		}
	})
	c.headerDecoder.SetMaxStringLength(64 << 10)
	c.headers.open(scheme, authority, headers)
	return c
}

// sendPreface sends the connection preface. read handles the server's preface with all other frames.
func (c *conn) sendPreface(ctx context.Context) error {
	c.output = append(c.output, http2.ClientPreface...)
	c.frame(http2.FrameSettings, 0, 0, 12)
	c.setting(http2.SettingEnablePush, 0)
	c.setting(http2.SettingInitialWindowSize, windowSize)
	c.windowUpdate(0, windowSize-65535)
	deadline, _ := ctx.Deadline()
	if err := c.netConn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.netConn.Write(c.output)
	c.output = c.output[:0]
	return err
}

func (c *conn) frame(kind http2.FrameType, flags http2.Flags, id uint32, length int) {
	c.output = append(c.output, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	c.output = binary.BigEndian.AppendUint32(c.output, id)
}

func (c *conn) setting(id http2.SettingID, value uint32) {
	c.output = binary.BigEndian.AppendUint16(c.output, uint16(id))
	c.output = binary.BigEndian.AppendUint32(c.output, value)
}

func (c *conn) windowUpdate(id uint32, more int) {
	c.frame(http2.FrameWindowUpdate, 0, id, 4)
	c.output = binary.BigEndian.AppendUint32(c.output, uint32(more))
}

func (c *conn) reset(id uint32, code http2.ErrCode) {
	c.frame(http2.FrameRSTStream, 0, id, 4)
	c.output = binary.BigEndian.AppendUint32(c.output, uint32(code))
}

func (c *conn) isUsable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.isClosing && c.failed == nil
}

// begin sends a call. It returns nil if that is not possible without waiting.
func (c *conn) begin(ctx context.Context, method string, message []byte) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(len(message))
	if c.isClosing || c.failed != nil || uint32(len(c.calls)+len(c.streams)) >= c.maxCalls ||
		size > min(c.sendWindow, c.initial) ||
		len(c.output)+len(message) > maxPending {
		return nil
	}
	k := callPool.Get().(*call)
	k.id = c.appendCall(method, nil, timeLeft(ctx), message, true)
	c.calls[k.id] = k
	c.flush(len(c.calls) > 1)
	return k
}

// timeLeft returns how much time a call has; 0 if there is no limit.
func timeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), time.Millisecond)
	}
	return 0
}

// appendCall appends the headers and the first message of a call to the buffer. all ends the request. The caller holds
// c.mu.
func (c *conn) appendCall(method string, headers []Header, left time.Duration, message []byte, all bool) (id uint32) {
	id = c.nextStream
	if c.nextStream += 2; c.nextStream >= maxStreamID-2 {
		c.isClosing = true // the stream IDs are used up
	}
	head := c.headers.blockFor(method, headers, left)
	c.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, id, len(head))
	c.output = append(c.output, head...)
	c.appendMessage(id, message, all)
	return id
}

// appendMessage appends a message, for which the window has room. The caller holds c.mu.
func (c *conn) appendMessage(id uint32, message []byte, last bool) {
	c.sendWindow -= int64(len(message))
	for {
		n := min(len(message), c.maxFrame)
		flags := http2.Flags(0)
		if last && n == len(message) {
			flags = http2.FlagDataEndStream
		}
		c.frame(http2.FrameData, flags, id, n)
		c.output = append(c.output, message[:n]...)
		if message = message[n:]; len(message) == 0 {
			return
		}
	}
}

// cancelCall cancels a call whose response is not needed any more. It returns false if the call has ended already.
func (c *conn) cancelCall(k *call) bool {
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
	if c.flushing || len(c.output) == 0 || c.failed != nil {
		return
	}
	c.flushing = true
	if together {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for len(c.output) > 0 && c.failed == nil {
		buf := c.output
		c.output, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		err := c.write(buf)
		c.mu.Lock()
		if cap(buf) <= maxPooledBuffer {
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
	if now := time.Now(); c.deadline.Sub(now) < writeTimeout/2 {
		c.deadline = now.Add(writeTimeout)
		if err := c.netConn.SetWriteDeadline(c.deadline); err != nil {
			return err
		}
	}
	_, err := c.netConn.Write(buf)
	return err
}

// keepAlive pings a server that owes responses and is silent.
func (c *conn) keepAlive() {
	tick := time.NewTicker(pingTimeout / 2)
	defer tick.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-tick.C:
		}
		c.pingIfSilent(time.Now())
	}
}

func (c *conn) pingIfSilent(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.calls)+len(c.streams) == 0 || now.Sub(c.lastReadAt) < pingAfter:
		c.pingedAt = time.Time{}
	case c.pingedAt.IsZero():
		c.pingedAt = now
		c.frame(http2.FramePing, 0, 0, 8)
		c.output = append(c.output, make([]byte, 8)...)
		c.flush(false)
	case now.Sub(c.pingedAt) >= pingTimeout:
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
	_ = c.netConn.Close() // nothing more is sent
	ended := status.Errorf(codes.Unavailable, "the connection to %s has ended: %v", c.authority, why)
	for _, k := range c.calls {
		c.endCall(k, ended)
	}
	for _, s := range c.streams {
		c.endStream(s, ended)
	}
}

// endCall completes a call. The caller holds c.mu.
func (c *conn) endCall(k *call, failed error) {
	delete(c.calls, k.id)
	k.failed = failed
	k.done <- struct{}{}
	c.close()
}

// close closes a connection that accepts no further calls, once all calls have ended. The caller holds c.mu.
func (c *conn) close() {
	if c.isClosing && len(c.calls)+len(c.streams) == 0 && c.failed == nil {
		c.failLocked(errors.New("the server takes no further calls on it"))
	}
}
