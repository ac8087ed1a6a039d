package h2

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"clusterctl/daemons/client/h2/framing"
)

const (
	// streamWindow is how much of an answer the server may send before it is read, and connWindow the same for all
	// answers together. Data is buffered per stream at once, so connWindow only bounds what is in transit.
	streamWindow = 1 << 20
	connWindow   = 1 << 30
	// writeTimeout is how long a write may block before the connection fails.
	writeTimeout = 30 * time.Second
	// maxKeptBuffer is the maximum size in bytes of a body's buffer that is kept while it is empty.
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
	headers     framing.HeaderBlock
	fields      []hpack.HeaderField // of the last header block
	headerNames headerNames

	mu           sync.Mutex
	output       framing.Output
	nextStreamID uint32 // id of the next stream
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
	c.output = framing.Output{Conn: nc, Lock: &c.mu, Timeout: writeTimeout}
	c.encoder.init()
	c.headers = framing.NewHeaderBlock(maxHeaderBytes, func(f hpack.HeaderField) { c.fields = append(c.fields, f) })
	return c
}

// writePreface sends the connection preface. The server's settings are read with the other frames.
func (c *conn) writePreface() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.output.Preface(http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderBytes})
	c.output.WindowUpdate(0, connWindow-65535)
	c.flush(false)
	if c.t.Idle > 0 {
		c.scheduleCheck(c.t.Idle)
	}
	return cmp.Or(c.err, c.writeErr)
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
	c.output.Headers(s.id, head, c.maxFrame, body == nil)
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

// bufferData buffers a part of a request's body that fits the send windows. The caller holds c.mu.
func (c *conn) bufferData(s *stream, part []byte, last bool) {
	c.sendWindow -= int64(len(part))
	s.sendWindow -= int64(len(part))
	c.output.Data(s.id, part, c.maxFrame, last)
	s.isSent = s.isSent || last
}

// flush writes the buffered frames, or leaves them to a goroutine that is writing. The caller holds c.mu, which is
// released during writes. together first lets other goroutines add to the buffer.
func (c *conn) flush(together bool) {
	if err := c.output.Flush(together); err != nil {
		c.failWrites(err)
	}
}

// readAfterWriteError is how long to continue reading after writing has failed.
const readAfterWriteError = time.Second

// failWrites gives up writing. A server that closes a connection may have sent answers before. The caller holds c.mu.
func (c *conn) failWrites(cause error) {
	c.writeErr, c.isClosing = cause, true
	c.output.Close()
	_ = c.nc.SetReadDeadline(time.Now().Add(readAfterWriteError)) // it fails only if reading fails too
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
		c.output.Ping(0, [8]byte{})
		c.scheduleCheck(c.t.Grace)
		c.flush(false)
	default:
		c.fail(errors.New("the server does not say whether it is there"))
	}
}

// fail closes the connection and ends all its streams. The caller holds c.mu.
func (c *conn) fail(cause error) {
	if c.err != nil {
		return
	}
	c.err = cause
	c.output.Close()
	if c.timer != nil {
		c.timer.Stop()
	}
	_ = c.nc.Close() // nothing more has to be sent
	lost := &ConnectionLostError{cause}
	for _, s := range c.streams {
		c.endStream(s, lost)
	}
	go c.t.removeConn(c) // in a goroutine, because the transport's lock must be taken before c.mu
}

// endStream ends a stream. The caller holds c.mu.
func (c *conn) endStream(s *stream, cause error) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	if !s.isSent && cause == io.EOF && c.err == nil {
		c.output.Reset(s.id, http2.ErrCodeNo) // the server has answered and does not need the rest of the body
	}
	s.end(cause)
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
