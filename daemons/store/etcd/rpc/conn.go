package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/client/h2/framing"
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
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
	// maxResponseHeaders is the maximum size in bytes of a response's header block.
	maxResponseHeaders = 64 << 10
	maxStreamID        = 1<<31 - 1
)

// conn is a connection.
type conn struct {
	netConn   net.Conn
	authority string
	closed    chan struct{} // closed when the connection has failed

	// The following fields belong to the reader goroutine.
	responseHeaders framing.HeaderBlock
	blockStatus     outcome // the status in the last header block

	mu         sync.Mutex
	output     framing.Output
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
	c.output = framing.Output{Conn: nc, Lock: &c.mu, Timeout: writeTimeout}
	c.responseHeaders = framing.NewHeaderBlock(maxResponseHeaders, func(f hpack.HeaderField) {
		switch f.Name {
		case "grpc-status":
			c.blockStatus.code = f.Value
		case "grpc-message":
			c.blockStatus.text = f.Value
		}
	})
	c.headers.open(scheme, authority, headers)
	return c
}

// sendPreface sends the connection preface. read handles the server's preface with all other frames.
func (c *conn) sendPreface(ctx context.Context) error {
	c.output.Preface(http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: windowSize})
	c.output.WindowUpdate(0, windowSize-65535)
	deadline, _ := ctx.Deadline()
	if err := c.netConn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.netConn.Write(c.output.Buffer)
	c.output.Buffer = c.output.Buffer[:0]
	return err
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
		len(c.output.Buffer)+len(message) > maxPending {
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
	c.output.Headers(id, head, c.maxFrame, false)
	c.appendMessage(id, message, all)
	return id
}

// appendMessage appends a message, for which the window has room. The caller holds c.mu.
func (c *conn) appendMessage(id uint32, message []byte, last bool) {
	c.sendWindow -= int64(len(message))
	c.output.Data(id, message, c.maxFrame, last)
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
		c.output.Reset(k.id, http2.ErrCodeCancel)
		c.flush(false)
	}
	return true
}

// flush writes the buffered frames, or leaves them to a goroutine that is writing. The caller holds c.mu, which is
// released during writes. With together, other goroutines get a chance to add their data first.
func (c *conn) flush(together bool) {
	if err := c.output.Flush(together); err != nil {
		c.failLocked(err)
	}
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
		c.output.Ping(0, [8]byte{})
		c.flush(false)
	case now.Sub(c.pingedAt) >= pingTimeout:
		c.failLocked(errors.New("the server does not answer"))
	}
}

// fail ends the connection and all its calls.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(cause)
}

func (c *conn) failLocked(cause error) {
	if c.failed != nil {
		return
	}
	c.failed = cause
	c.output.Close()
	close(c.closed)
	_ = c.netConn.Close() // nothing more is sent
	ended := status.Errorf(codes.Unavailable, "the connection to %s has ended: %v", c.authority, cause)
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
