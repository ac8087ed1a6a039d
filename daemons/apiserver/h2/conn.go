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
	s              *Server
	nc             *tls.Conn
	gatherer       *gatherer // nil if the connection does not come from a gathering listener
	handler        http.Handler
	tls            tls.ConnectionState
	remote         string
	maxHeaders     uint32                // maximum size of a request's headers
	identification *run.UnidentifiedConn // reports whether the client has been identified
	limitsRaised   bool                  // see lift; used only by the reading goroutine
	// until when the connection waits for its client to be identified; zero if it has not had to wait
	identifyBy  time.Time
	baseContext context.Context
	input       *boundedReader
	reader      *http2.Framer
	control     allowance      // used only by the reading goroutine
	running     sync.WaitGroup // counts handlers

	mu                 sync.Mutex
	streams            map[uint32]*stream // the open streams
	newestStream       uint32             // highest stream that was begun
	recentResets       [32]uint32         // streams that this server reset recently, for which frames may still arrive
	resets             int
	runningHandlers    int       // running handlers
	queued             []*stream // waiting for a handler to end
	countedHeaders     int       // total size of large headers
	sentGoAway         bool      // whether GOAWAY was sent, so no further streams begin
	isHalfClosed       bool      // whether the sending direction is closed
	failed             error     // why the connection cannot be used any more
	sharedValue        any
	idleSince          time.Time // when the last stream ended
	idleTimer          *time.Timer
	isHeldTimerRunning bool // whether the timer held is running
	heldTimer          *time.Timer
	output             outputBuffer
	window             flowWindow // window for the client's data
}

func newConn(s *Server, nc *tls.Conn, h http.Handler, limit uint32) *Conn {
	c := &Conn{
		s:          s,
		nc:         nc,
		handler:    h,
		maxHeaders: limit,
		tls:        nc.ConnectionState(),
		remote:     nc.RemoteAddr().String(),
		streams:    map[uint32]*stream{},
		idleSince:  time.Now(),
	}
	c.gatherer = gathererOf(nc)
	c.output.window, c.output.initial, c.output.maxFrame = 65535, 65535, 16384
	c.window = flowWindow{available: unidentifiedWindow, size: unidentifiedWindow}
	c.input = &boundedReader{Reader: bufio.NewReaderSize(nc, 4<<10), onRead: c.raiseLimits}
	c.output.flushed.L = &c.mu
	c.reader = http2.NewFramer(io.Discard, c.input)
	c.reader.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.reader.MaxHeaderListSize = min(limit, unidentifiedHeaders)
	c.reader.SetMaxReadFrameSize(16384)
	c.reader.SetReuseFrames()
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
	c.baseContext, c.identification = ctx, run.ConnOf(ctx)
	if len(c.tls.VerifiedChains) > 0 {
		c.identification.Identify()
	}
	err := c.exchangePrefaces()
	if err == nil {
		c.mu.Lock()
		c.idleTimer = time.AfterFunc(c.s.IdleTimeout, c.closeIdle)
		c.mu.Unlock()
		err = c.readFrames()
		c.idleTimer.Stop()
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
	c.running.Wait()
}

// closeIdle ends a connection that has had no streams for IdleTimeout.
func (c *Conn) closeIdle() {
	c.mu.Lock()
	left := c.s.IdleTimeout
	if len(c.streams) == 0 {
		left -= time.Since(c.idleSince)
	}
	if left > 0 && c.failed == nil {
		c.idleTimer.Reset(left)
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
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: c.maxHeaders})
	c.mu.Unlock()
	preface := make([]byte, len(http2.ClientPreface))
	c.input.remaining = len(preface)
	if _, err := io.ReadFull(c.input, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	first, err := c.readFrame()
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
		f, err := c.readFrame()
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
	if !c.sentGoAway && c.failed == nil {
		c.sentGoAway = true
		c.output.goAway(c.newestStream, http2.ErrCodeNo)
	}
}

// closeIfDone closes the sending direction after GOAWAY, when no stream is left. Reading continues for a moment.
// Closing with unread data would reset the connection, and the client would not receive GOAWAY. It would not learn then
// that its latest requests were not begun. The caller holds c.mu.
func (c *Conn) closeIfDone() {
	if !c.sentGoAway || len(c.streams) > 0 || len(c.output.pending) > 0 || c.output.flushing || c.failed != nil ||
		c.isHalfClosed {
		return
	}
	c.isHalfClosed = true
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
	c.sentGoAway = true
	c.output.goAway(c.newestStream, code)
	c.flushLocked()
	c.mu.Unlock()
	_ = c.nc.CloseWrite() // so that the client can still receive GOAWAY
	_ = c.nc.SetReadDeadline(time.Now().Add(goAwayLinger))
	_, _ = io.CopyN(io.Discard, c.nc, windowSize)
}

// fail closes the connection and ends all its streams.
func (c *Conn) fail() {
	c.mu.Lock()
	c.failed = cmp.Or(c.failed, errConnEnded)
	ended := slices.Collect(maps.Values(c.streams))
	clear(c.streams)
	c.queued = nil
	if c.heldTimer != nil {
		c.heldTimer.Stop()
	}
	c.mu.Unlock()
	_ = c.nc.Close() // nothing more is sent
	for _, st := range ended {
		st.end(errConnEnded)
	}
}
