package h2

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// stream is one request and its response. The connection's lock guards everything that may change.
type stream struct {
	conn     *Conn
	id       uint32
	req      *http.Request
	cancel   context.CancelFunc // nil until a handler is started or queued
	body     body
	response responseWriter
	cond     sync.Cond // signalled when something changes that a reader or writer of the stream waits for

	countedHeaders int   // size of the headers, if they are counted
	window         int64 // flow-control window of the client
	blocked        bool  // whether the stream is in the connection's list of blocked streams
	isHeld         bool  // whether the handler waits for the body
	endReason      error // why nothing more is sent or received
	onRoom         func()
	discardTimer   *time.Timer // set while the rest of the body is discarded after the response
}

// wake wakes those that wait for the stream. The caller holds c.mu.
func (st *stream) wake() {
	st.cond.Broadcast()
	if f := st.onRoom; f != nil {
		st.onRoom = nil
		f()
	}
}

// wait waits for a change, or for a deadline. The caller holds c.mu.
func (st *stream) wait(deadline *time.Time) error {
	switch left := time.Until(*deadline); {
	case deadline.IsZero():
	case left <= 0:
		return os.ErrDeadlineExceeded
	default:
		timer := time.AfterFunc(left, func() {
			st.conn.mu.Lock()
			defer st.conn.mu.Unlock()
			st.cond.Broadcast()
		})
		defer timer.Stop()
	}
	st.cond.Wait()
	if !deadline.IsZero() && !time.Now().Before(*deadline) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// end cancels the handler's context, because the stream has ended. The caller does not hold c.mu.
func (st *stream) end(cause error) {
	st.conn.mu.Lock()
	st.endReason = cmp.Or(st.endReason, cause)
	st.wake()
	cancel := st.cancel
	st.conn.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// begin starts the handler of a stream, or queues it until others have ended. The caller holds c.mu.
func (c *Conn) begin(st *stream) error {
	ctx, cancel := context.WithCancel(c.baseContext)
	st.req, st.cancel = st.req.WithContext(ctx), cancel
	if st.endReason != nil {
		cancel()
	}
	switch {
	case c.handlers.running < maxStreams:
		c.handlers.running++
		c.handlers.all.Add(1)
		c.s.workers.run(st)
	case len(c.handlers.queued) >= maxWaiting:
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	default:
		c.handlers.queued = append(c.handlers.queued, st)
	}
	return nil
}

// runHandler runs the handler, on a worker.
func (st *stream) runHandler() {
	c := st.conn
	if st.callHandler() {
		st.response.finish()
	}
	st.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams.uncountHeaders(st)
	c.endHandler()
}

// callHandler calls the handler, and reports whether it returned normally.
func (st *stream) callHandler() (well bool) {
	c := st.conn
	if st.response.errorStatus != 0 {
		st.response.WriteHeader(st.response.errorStatus)
		return true
	}
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // it is a value, as net/http has it
				c.s.Log.Error("a request's handler panicked", "method", st.req.Method, "path", st.req.URL.Path,
					"reason", p, "stack", string(debug.Stack()))
			}
			_ = c.refuse(st.id, http2.ErrCodeInternal) // only fails if the connection has ended
		}
	}()
	c.handler.ServeHTTP(&st.response, st.req)
	return true
}

// refuse resets a stream with an error code.
func (c *Conn) refuse(id uint32, code http2.ErrCode) error {
	if id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	st := c.streams.open[id]
	c.streams.newest = max(c.streams.newest, id) // the refused frame may have begun the stream
	c.streams.recordReset(id)
	c.output.reset(id, code)
	if st != nil {
		c.remove(st)
	}
	c.mu.Unlock()
	if st != nil {
		st.end(errReset)
	}
	return c.flushReplies()
}

// recordReset records a stream that was reset, so that frames that still arrive for it are ignored. The caller holds
// c.mu.
func (t *streamTable) recordReset(id uint32) {
	t.recentResets[t.resets%len(t.recentResets)] = id
	t.resets++
}

func (t *streamTable) wasReset(id uint32) bool { return slices.Contains(t.recentResets[:], id) }

// remove removes an open stream. The caller holds c.mu.
func (c *Conn) remove(st *stream) {
	if c.streams.open[st.id] != st {
		return
	}
	delete(c.streams.open, st.id)
	if st.discardTimer != nil {
		st.discardTimer.Stop()
	}
	c.sendWindowUpdates(nil, st.body.discard())
	if st.cancel == nil {
		c.streams.uncountHeaders(st) // no handler has been started
	}
	if len(c.streams.open) == 0 {
		c.timers.idleSince = time.Now()
		c.closeIfDone()
	}
}

func (c *Conn) onReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	st := c.streams.open[f.StreamID]
	if st == nil {
		defer c.mu.Unlock()
		if i := slices.Index(c.streams.recentResets[:], f.StreamID); i >= 0 {
			c.streams.recentResets[i] = 0 // no frame of it can arrive any more
		}
		return c.checkNotIdle(f.StreamID)
	}
	c.remove(st)
	c.mu.Unlock()
	st.end(errReset)
	return nil
}

var errReset = errors.New("the client has ended the stream")

// Stream lets a handler write to a stream without blocking. One goroutine can so write to many streams.
type Stream struct{ st *stream }

// StreamOf returns the stream behind a response; nil if the response is not of this package.
func StreamOf(w http.ResponseWriter) *Stream {
	for {
		switch t := w.(type) {
		case *responseWriter:
			return &Stream{t.st}
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}

// Conn returns the connection.
func (s *Stream) Conn() *Conn { return s.st.conn }

// TryWrite takes as much of data as can be sent without waiting. The headers must have been written. The data is sent
// at the next flush. If not all of it was taken, onRoom is called once there may be room. onRoom must not block or call
// TryWrite.
func (s *Stream) TryWrite(data []byte, onRoom func()) (int, error) {
	st := s.st
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	if err := cmp.Or(st.endReason, st.conn.end.failed); err != nil {
		return 0, err
	}
	n := st.buffer(data)
	if n < len(data) {
		st.onRoom = onRoom
	}
	return n, nil
}
