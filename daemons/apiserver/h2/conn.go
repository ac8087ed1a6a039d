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
	s       *Server
	nc      *tls.Conn
	gather  *gatherer // nil if the connection does not come from a gathering listener
	handler http.Handler
	tls     tls.ConnectionState
	remote  string
	limit   uint32       // maximum size of a request's headers
	visitor *run.Visitor // reports whether the client has been identified
	lifted  bool         // see lift; used only by the reading goroutine
	// until when the connection waits for its client to be identified; zero if it has not had to wait
	introduction time.Time
	base         context.Context
	input        *bounded
	reader       *http2.Framer
	control      allowance      // used only by the reading goroutine
	running      sync.WaitGroup // counts handlers

	mu      sync.Mutex
	streams map[uint32]*stream // the open streams
	newest  uint32             // highest stream that was begun
	reset   [32]uint32         // streams that this server reset recently, for which frames may still arrive
	resets  int
	busy    int       // running handlers
	waiting []*stream // waiting for a handler to end
	large   int       // total size of large headers
	going   bool      // whether GOAWAY was sent, so no further streams begin
	parted  bool      // whether the sending direction is closed
	failed  error     // why the connection cannot be used any more
	share   any
	rested  time.Time // when the last stream ended
	idle    *time.Timer
	holding bool // whether the timer held is running
	held    *time.Timer
	out     outgoing
	in      credit // window for the client's data
}

func newConn(s *Server, nc *tls.Conn, h http.Handler, limit uint32) *Conn {
	c := &Conn{
		s:       s,
		nc:      nc,
		handler: h,
		limit:   limit,
		tls:     nc.ConnectionState(),
		remote:  nc.RemoteAddr().String(),
		streams: map[uint32]*stream{},
		rested:  time.Now(),
	}
	c.gather = gathererOf(nc)
	c.out.window, c.out.initial, c.out.maxFrame = 65535, 65535, 16384
	c.in = credit{left: visitorWindow, size: visitorWindow}
	c.input = &bounded{Reader: bufio.NewReaderSize(nc, 4<<10), came: c.lift}
	c.out.idle.L = &c.mu
	c.reader = http2.NewFramer(io.Discard, c.input)
	c.reader.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.reader.MaxHeaderListSize = min(limit, visitorHeaders)
	c.reader.SetMaxReadFrameSize(16384)
	c.reader.SetReuseFrames()
	return c
}

// Share returns a value that the streams of this connection share. The first call creates it by make.
func (c *Conn) Share(make func() any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.share == nil {
		c.share = make()
	}
	return c.share
}

// serve reads frames until the connection ends, then waits for the handlers.
func (c *Conn) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c.base, c.visitor = ctx, run.VisitorOf(ctx)
	if len(c.tls.VerifiedChains) > 0 {
		c.visitor.Identify()
	}
	err := c.greet()
	if err == nil {
		c.mu.Lock()
		c.idle = time.AfterFunc(c.s.IdleTimeout, c.tire)
		c.mu.Unlock()
		err = c.read()
		c.idle.Stop()
	}
	var code http2.ConnectionError
	switch {
	case errors.As(err, &code):
		c.bye(http2.ErrCode(code))
	case errors.Is(err, http2.ErrFrameTooLarge):
		c.bye(http2.ErrCodeFrameSize)
	}
	c.fail()
	cancel()
	c.running.Wait()
}

// tire ends a connection that has had no streams for IdleTimeout.
func (c *Conn) tire() {
	c.mu.Lock()
	left := c.s.IdleTimeout
	if len(c.streams) == 0 {
		left -= time.Since(c.rested)
	}
	if left > 0 && c.failed == nil {
		c.idle.Reset(left)
	}
	c.mu.Unlock()
	if left <= 0 {
		c.drain()
	}
}

// greet exchanges the connection prefaces and the first settings.
func (c *Conn) greet() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	c.mu.Lock()
	c.out.settings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: window},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: c.limit})
	c.mu.Unlock()
	preface := make([]byte, len(http2.ClientPreface))
	c.input.left = len(preface)
	if _, err := io.ReadFull(c.input, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	first, err := c.next()
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
	if err := c.reply(); err != nil {
		return err
	}
	return c.nc.SetReadDeadline(time.Time{})
}

// read handles frames until the connection ends or fails.
func (c *Conn) read() error {
	for {
		f, err := c.next()
		if err == nil {
			err = c.on(f)
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

func (c *Conn) on(f http2.Frame) error {
	err := c.pay(controlCost(f))
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
			c.out.ping(f.Data)
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
	return c.reply()
}

// reply flushes what handling frames has left in the buffer. A client that keeps sending frames but does not read the
// responses is disconnected.
func (c *Conn) reply() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out.buf) > 2*mostPending {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if c.out.flushing || len(c.out.buf) == 0 {
		return nil
	}
	c.flushAside()
	return nil
}

// drain sends GOAWAY, and ends the connection when its streams have ended.
func (c *Conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part()
	c.flushLocked()
	c.settle()
}

// part sends GOAWAY. The caller holds c.mu.
func (c *Conn) part() {
	if !c.going && c.failed == nil {
		c.going = true
		c.out.goAway(c.newest, http2.ErrCodeNo)
	}
}

// settle closes the sending direction after GOAWAY, when no stream is left. Reading continues for a moment. Closing
// with unread data would reset the connection, and the client would not receive GOAWAY. It would not learn then that
// its latest requests were not begun. The caller holds c.mu.
func (c *Conn) settle() {
	if !c.going || len(c.streams) > 0 || len(c.out.buf) > 0 || c.out.flushing || c.failed != nil || c.parted {
		return
	}
	c.parted = true
	_ = c.nc.CloseWrite() // the reading goroutine finds errors of the connection
	_ = c.nc.SetReadDeadline(time.Now().Add(linger))
}

// linger is how long a client has to receive GOAWAY.
const linger = time.Second

var errEnded = errors.New("the connection has ended")

// bye sends GOAWAY with an error code, after pending writes.
func (c *Conn) bye(code http2.ErrCode) {
	_ = c.nc.SetWriteDeadline(time.Now().Add(linger)) // pending writes must not wait for the client any longer
	c.mu.Lock()
	for c.out.flushing {
		c.out.idle.Wait()
	}
	c.going = true
	c.out.goAway(c.newest, code)
	c.flushLocked()
	c.mu.Unlock()
	_ = c.nc.CloseWrite() // so that the client can still receive GOAWAY
	_ = c.nc.SetReadDeadline(time.Now().Add(linger))
	_, _ = io.CopyN(io.Discard, c.nc, window)
}

// fail closes the connection and ends all its streams.
func (c *Conn) fail() {
	c.mu.Lock()
	c.failed = cmp.Or(c.failed, errEnded)
	ended := slices.Collect(maps.Values(c.streams))
	clear(c.streams)
	c.waiting = nil
	if c.held != nil {
		c.held.Stop()
	}
	c.mu.Unlock()
	_ = c.nc.Close() // nothing more is sent
	for _, st := range ended {
		st.end(errEnded)
	}
}
