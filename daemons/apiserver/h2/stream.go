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
	c      *Conn
	id     uint32
	req    *http.Request
	cancel context.CancelFunc // nil until a handler is started or queued
	body   body
	res    response
	cond   sync.Cond // signalled when something changes that a reader or writer of the stream waits for

	large   int   // size of the headers, if they are counted
	window  int64 // flow-control window of the client
	blocked bool  // whether the stream is in the connection's list of blocked streams
	held    bool  // whether the handler waits for the body
	gone    error // why nothing more is sent or received
	onRoom  func()
	discard *time.Timer // set while the rest of the body is discarded after the response
}

// look wakes those that wait for the stream. The caller holds c.mu.
func (st *stream) look() {
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
			st.c.mu.Lock()
			defer st.c.mu.Unlock()
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
func (st *stream) end(why error) {
	st.c.mu.Lock()
	st.gone = cmp.Or(st.gone, why)
	st.look()
	cancel := st.cancel
	st.c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// begin starts the handler of a stream, or queues it until others have ended. The caller holds c.mu.
func (c *Conn) begin(st *stream) error {
	ctx, cancel := context.WithCancel(c.base)
	st.req, st.cancel = st.req.WithContext(ctx), cancel
	if st.gone != nil {
		cancel()
	}
	switch {
	case c.busy < maxStreams:
		c.busy++
		c.running.Add(1)
		c.s.workers.run(st)
	case len(c.waiting) >= maxWaiting:
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	default:
		c.waiting = append(c.waiting, st)
	}
	return nil
}

// answer runs the handler, on a worker.
func (st *stream) answer() {
	c := st.c
	if c.handle(st) {
		st.res.finish()
	}
	st.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgo(st)
	c.over()
}

// handle calls the handler, and reports whether it returned normally.
func (c *Conn) handle(st *stream) (well bool) {
	if st.res.instead != 0 {
		st.res.WriteHeader(st.res.instead)
		return true
	}
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // it is a value, as net/http has it
				c.s.Log.Error(
					"a request's handler panicked",
					"method",
					st.req.Method,
					"path",
					st.req.URL.Path,
					"reason",
					p,
					"stack",
					string(debug.Stack()),
				)
			}
			_ = c.refuse(st.id, http2.ErrCodeInternal) // only fails if the connection has ended
		}
	}()
	c.handler.ServeHTTP(&st.res, st.req)
	return true
}

// refuse resets a stream with an error code.
func (c *Conn) refuse(id uint32, code http2.ErrCode) error {
	if id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	st := c.streams[id]
	c.newest = max(c.newest, id) // the refused frame may have begun the stream
	c.forget(id)
	c.out.reset(id, code)
	if st != nil {
		c.remove(st)
	}
	c.mu.Unlock()
	if st != nil {
		st.end(errReset)
	}
	return c.reply()
}

// forget records a stream that was reset, so that frames that still arrive for it are ignored. The caller holds c.mu.
func (c *Conn) forget(id uint32) {
	c.reset[c.resets%len(c.reset)] = id
	c.resets++
}

func (c *Conn) forgotten(id uint32) bool { return slices.Contains(c.reset[:], id) }

// remove removes an open stream. The caller holds c.mu.
func (c *Conn) remove(st *stream) {
	if c.streams[st.id] != st {
		return
	}
	delete(c.streams, st.id)
	if st.discard != nil {
		st.discard.Stop()
	}
	c.giveBack(nil, st.body.drop())
	if st.cancel == nil {
		c.forgo(st) // no handler has been started
	}
	if len(c.streams) == 0 {
		c.rested = time.Now()
		c.settle()
	}
}

func (c *Conn) onReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	st := c.streams[f.StreamID]
	if st == nil {
		defer c.mu.Unlock()
		if i := slices.Index(c.reset[:], f.StreamID); i >= 0 {
			c.reset[i] = 0 // no frame of it can arrive any more
		}
		return c.closed(f.StreamID)
	}
	c.remove(st)
	c.mu.Unlock()
	st.end(errReset)
	return nil
}

var errReset = errors.New("the client has ended the stream")

// Stream lets a handler write to a stream without blocking. One goroutine can so write to many streams.
type Stream struct{ st *stream }

// Of returns the stream behind a response; nil if the response is not of this package.
func Of(w http.ResponseWriter) *Stream {
	for {
		switch t := w.(type) {
		case *response:
			return &Stream{t.st}
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}

// Conn returns the connection.
func (s *Stream) Conn() *Conn { return s.st.c }

// Offer takes as much of data as can be sent without waiting. The headers must have been written. The data is sent at
// the next flush. If not all of it was taken, onRoom is called once there may be room. onRoom must not block or call
// Offer.
func (s *Stream) Offer(data []byte, onRoom func()) (int, error) {
	st := s.st
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if err := cmp.Or(st.gone, st.c.failed); err != nil {
		return 0, err
	}
	n := st.take(data)
	if n < len(data) {
		st.onRoom = onRoom
	}
	return n, nil
}
