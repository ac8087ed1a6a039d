package h2

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"clusterctl/daemons/run"
)

// Conn is a connection. One goroutine reads frames and handles them in order. Any goroutine may write.
type Conn struct {
	s           *Server
	nc          *tls.Conn
	gatherer    *gatherer // nil if the connection does not come from a gathering listener
	handler     http.Handler
	baseContext context.Context
	client      clientState
	frames      frameReader

	mu          sync.Mutex // guards the following fields
	streams     streamTable
	handlers    handlers
	sharedValue any
	end         connEnd
	timers      timers
	output      outputBuffer
	window      flowWindow // window for the client's data
}

// streamTable holds the open streams of a connection, and what is remembered of others.
type streamTable struct {
	open           map[uint32]*stream
	newest         uint32     // highest stream that was begun
	recentResets   [32]uint32 // streams that this server reset recently, for which frames may still arrive
	resets         int
	countedHeaders int // total size of large headers
}

// handlers are the handlers of a connection's streams.
type handlers struct {
	running int            // the number of running handlers
	queued  []*stream      // waiting for a handler to end
	all     sync.WaitGroup // counts handlers and other goroutines of the connection
}

// connEnd is how far the end of a connection has come.
type connEnd struct {
	sentGoAway   bool  // whether GOAWAY was sent, so no further streams begin
	isHalfClosed bool  // whether the sending direction is closed
	failed       error // why the connection cannot be used any more
}

// timers are the timers of a connection.
type timers struct {
	idleSince     time.Time // when the last stream ended
	idle          *time.Timer
	held          *time.Timer // starts the handlers that wait for their bodies
	isHeldRunning bool        // whether the timer held is running
}

func newConn(s *Server, nc *tls.Conn, h http.Handler, limit uint32) *Conn {
	c := &Conn{
		s:       s,
		nc:      nc,
		handler: h,
		client:  clientState{tls: nc.ConnectionState(), remote: nc.RemoteAddr().String()},
		streams: streamTable{open: map[uint32]*stream{}},
		timers:  timers{idleSince: time.Now()},
	}
	c.frames.maxHeaders = limit
	c.gatherer = gathererOf(nc)
	c.output.window, c.output.initial, c.output.maxFrame = 65535, 65535, 16384
	c.window = flowWindow{available: unidentifiedWindow, size: unidentifiedWindow}
	c.frames.input = &boundedReader{Reader: bufio.NewReaderSize(nc, 4<<10), onRead: c.raiseLimits}
	c.output.flushed.L = &c.mu
	c.frames.framer = http2.NewFramer(io.Discard, c.frames.input)
	c.frames.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.frames.framer.MaxHeaderListSize = min(limit, unidentifiedHeaders)
	c.frames.framer.SetMaxReadFrameSize(16384)
	c.frames.framer.SetReuseFrames()
	return c
}

// SharedValue returns a value that the streams of this connection share. The first call creates it by make.
func (c *Conn) SharedValue(make func() any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sharedValue == nil {
		c.sharedValue = make()
	}
	return c.sharedValue
}

// serve reads frames until the connection ends, then waits for the handlers.
func (c *Conn) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c.baseContext, c.client.identification = ctx, run.ConnOf(ctx)
	if len(c.client.tls.VerifiedChains) > 0 {
		c.client.identification.Identify()
	}
	err := c.exchangePrefaces()
	if err == nil {
		c.mu.Lock()
		c.timers.idle = time.AfterFunc(c.s.IdleTimeout, c.closeIdle)
		c.mu.Unlock()
		err = c.readFrames()
		c.timers.idle.Stop()
	}
	var code http2.ConnectionError
	switch {
	case errors.As(err, &code):
		c.closeWithError(http2.ErrCode(code))
	case errors.Is(err, http2.ErrFrameTooLarge):
		c.closeWithError(http2.ErrCodeFrameSize)
	}
	c.fail()
	cancel()
	c.handlers.all.Wait()
}

// closeIdle ends a connection that has had no streams for IdleTimeout.
func (c *Conn) closeIdle() {
	c.mu.Lock()
	left := c.s.IdleTimeout
	if len(c.streams.open) == 0 {
		left -= time.Since(c.timers.idleSince)
	}
	if left > 0 && c.end.failed == nil {
		c.timers.idle.Reset(left)
	}
	c.mu.Unlock()
	if left <= 0 {
		c.drain()
	}
}

// exchangePrefaces exchanges the connection prefaces and the first settings.
func (c *Conn) exchangePrefaces() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(prefaceTimeout)); err != nil {
		return err
	}
	c.mu.Lock()
	c.output.settings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: windowSize},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: c.frames.maxHeaders})
	c.mu.Unlock()
	preface := make([]byte, len(http2.ClientPreface))
	c.frames.input.remaining = len(preface)
	if _, err := io.ReadFull(c.frames.input, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	first, err := c.frames.read()
	if err != nil {
		return err
	}
	settings, ok := first.(*http2.SettingsFrame)
	if !ok || settings.IsAck() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := c.onSettings(settings); err != nil {
		return err
	}
	if err := c.flushReplies(); err != nil {
		return err
	}
	return c.nc.SetReadDeadline(time.Time{})
}

// readFrames handles frames until the connection ends or fails.
func (c *Conn) readFrames() error {
	for {
		f, err := c.frames.read()
		if err == nil {
			err = c.handleFrame(f)
		}
		var stream http2.StreamError
		if errors.As(err, &stream) {
			err = c.refuse(stream.StreamID, stream.Code)
		}
		if err != nil {
			return err
		}
	}
}

func (c *Conn) handleFrame(f http2.Frame) error {
	err := c.payControl(controlCost(f))
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		err = c.onHeaders(f)
	case *http2.DataFrame:
		err = c.onData(f)
	case *http2.WindowUpdateFrame:
		err = c.onWindowUpdate(f)
	case *http2.SettingsFrame:
		err = c.onSettings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			c.mu.Lock()
			c.output.ping(f.Data)
			c.mu.Unlock()
		}
	case *http2.RSTStreamFrame:
		err = c.onReset(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			err = http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.GoAwayFrame:
		c.drain()
	case *http2.PushPromiseFrame:
		err = http2.ConnectionError(http2.ErrCodeProtocol)
	default: // unknown frames must be ignored
	}
	if err != nil {
		return err
	}
	return c.flushReplies()
}

// flushReplies flushes what handling frames has left in the buffer. A client that keeps sending frames but does not
// read the responses is disconnected.
func (c *Conn) flushReplies() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.output.pending) > 2*maxPending {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if c.output.flushing || len(c.output.pending) == 0 {
		return nil
	}
	c.flushInBackground()
	return nil
}

// drain sends GOAWAY, and ends the connection when its streams have ended.
func (c *Conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendGoAwayLocked()
	c.flushLocked()
	c.closeIfDone()
}

// sendGoAwayLocked sends GOAWAY. The caller holds c.mu.
func (c *Conn) sendGoAwayLocked() {
	if !c.end.sentGoAway && c.end.failed == nil {
		c.end.sentGoAway = true
		c.output.goAway(c.streams.newest, http2.ErrCodeNo)
	}
}

// closeIfDone closes the sending direction after GOAWAY, when no stream is left. Reading continues for a moment.
// Closing with unread data would reset the connection, and the client would not receive GOAWAY. It would not learn then
// that its latest requests were not begun. The caller holds c.mu.
func (c *Conn) closeIfDone() {
	if !c.end.sentGoAway || c.end.isHalfClosed || c.end.failed != nil || len(c.streams.open) > 0 ||
		len(c.output.pending) > 0 || c.output.flushing {
		return
	}
	c.end.isHalfClosed = true
	_ = c.nc.CloseWrite() // the reading goroutine finds errors of the connection
	_ = c.nc.SetReadDeadline(time.Now().Add(goAwayLinger))
}

// goAwayLinger is how long a client has to receive GOAWAY.
const goAwayLinger = time.Second

var errConnEnded = errors.New("the connection has ended")

// closeWithError sends GOAWAY with an error code, after pending writes.
func (c *Conn) closeWithError(code http2.ErrCode) {
	_ = c.nc.SetWriteDeadline(time.Now().Add(goAwayLinger)) // pending writes must not wait for the client any longer
	c.mu.Lock()
	for c.output.flushing {
		c.output.flushed.Wait()
	}
	c.end.sentGoAway = true
	c.output.goAway(c.streams.newest, code)
	c.flushLocked()
	c.mu.Unlock()
	_ = c.nc.CloseWrite() // so that the client can still receive GOAWAY
	_ = c.nc.SetReadDeadline(time.Now().Add(goAwayLinger))
	_, _ = io.CopyN(io.Discard, c.nc, windowSize)
}

// fail closes the connection and ends all its streams.
func (c *Conn) fail() {
	c.mu.Lock()
	c.end.failed = cmp.Or(c.end.failed, errConnEnded)
	ended := slices.Collect(maps.Values(c.streams.open))
	clear(c.streams.open)
	c.handlers.queued = nil
	if c.timers.held != nil {
		c.timers.held.Stop()
	}
	c.mu.Unlock()
	_ = run.CloseWithin(c.nc, stuckTimeout) // nothing more is sent
	for _, st := range ended {
		st.end(errConnEnded)
	}
}
