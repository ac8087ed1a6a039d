package h2

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
)

// stream is a request with its answer. Its fields are guarded by the connection's mu.
type stream struct {
	c       *conn
	id      uint32
	request *http.Request
	changed chan struct{} // receives a value when the answer changes

	response       *http.Response // nil until the headers have arrived
	ended          error          // io.EOF if the answer is complete
	received       []byte         // received body; text[read:] is not read yet
	read           int
	expectedLength int64 // length of the body; negative if unknown
	receivedLength int64
	unreturned     int // received bytes that are not returned to the stream's window yet
	consumed       int // the part of unreturned that was read or is discarded
	stop           func() bool

	isSent     bool          // whether the request is sent completely
	sendWindow int64         // send window of the stream
	sending    chan struct{} // receives a value when the window grows or the stream ends; nil if no body is being sent
}

// wakeReader wakes the reader of the answer. The caller holds c.mu.
func (s *stream) wakeReader() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// wakeSender wakes the sender of the body, since the windows may have grown. The caller holds c.mu.
func (s *stream) wakeSender() {
	if s.sending == nil {
		return
	}
	select {
	case s.sending <- struct{}{}:
	default:
	}
}

// end is called once, when the stream is removed from the connection. The caller holds c.mu.
func (s *stream) end(cause error) {
	s.ended = cause
	if s.stop != nil {
		s.stop()
	}
	s.wakeReader()
	s.wakeSender()
}

// awaitResponse waits for the answer's headers. From then on, the end of the request's context ends the body.
func (s *stream) awaitResponse(ctx context.Context) (*http.Response, error) {
	for {
		select {
		case <-s.changed:
		case <-ctx.Done():
			s.cancel(ctx.Err())
		}
		s.c.mu.Lock()
		response, ended := s.response, s.ended
		if response != nil && ended == nil && ctx.Done() != nil && s.stop == nil {
			s.stop = context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })
		}
		if len(s.received) > s.read || ended != nil {
			s.wakeReader() // wake the reader of the body
		}
		s.c.mu.Unlock()
		if response != nil {
			return response, nil
		}
		if ended != nil {
			return nil, ended
		}
	}
}

// cancel aborts the stream if it has not ended.
func (s *stream) cancel(cause error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.resetStream(s, http2.ErrCodeCancel, cause)
	s.c.flush(false)
}

// bodyBuffers holds buffers of bodies, of up to twice the window, which is the size that appending may reach. A watch
// of a large cluster would otherwise allocate such buffers again and again. Unused ones are garbage collected.
var bodyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// buffer appends a part of the answer's body. The caller holds c.mu.
func (s *stream) buffer(part []byte) {
	switch left := len(s.received) - s.read; {
	case s.received == nil:
		s.received = (*bodyBuffers.Get().(*[]byte))[:0]
	case left <= s.read:
		// Reuse the part that was read. Otherwise a reader that is always behind would make the buffer hold all of a
		// long answer.
		s.received, s.read = s.received[:copy(s.received, s.received[s.read:])], 0
	}
	s.received = append(s.received, part...)
}

// release returns the buffer to the pool. The caller holds c.mu.
func (s *stream) release() {
	if text := s.received; cap(text) > 0 && cap(text) <= 2*streamWindow {
		bodyBuffers.Put(&text)
	}
	s.received, s.read = nil, 0
}

// body is an answer's body.
type body struct{ stream *stream }

var errClosed = errors.New("the answer's body has been closed")

// Read returns received data. An incomplete body ends with io.ErrUnexpectedEOF, or with the error of the request's
// context.
func (b body) Read(p []byte) (int, error) {
	s, c := b.stream, b.stream.c
	for {
		c.mu.Lock()
		if n := copy(p, s.received[s.read:]); n > 0 || len(p) == 0 {
			s.read += n
			if s.read == len(s.received) && cap(s.received) > maxKeptBuffer {
				s.release() // a watch may send nothing for long after a lot of data
			}
			s.returnWindow(n)
			c.mu.Unlock()
			return n, nil
		}
		ended := s.ended
		if ended != nil {
			s.release()
		}
		c.mu.Unlock()
		switch {
		case ended == nil:
			<-s.changed
		case errors.Is(ended, io.EOF),
			errors.Is(ended, errClosed),
			errors.Is(ended, context.Canceled),
			errors.Is(ended, context.DeadlineExceeded):
			return 0, ended
		default:
			return 0, io.ErrUnexpectedEOF
		}
	}
}

// returnWindow returns read bytes to the stream's window. The caller holds c.mu.
func (s *stream) returnWindow(n int) {
	if s.ended != nil {
		return
	}
	if s.consumed += n; s.consumed >= streamWindow/4 {
		s.c.output.WindowUpdate(s.id, s.consumed)
		s.unreturned -= s.consumed
		s.consumed = 0
		s.c.flush(false)
	}
}

// Close aborts the answer if it has not ended.
func (b body) Close() error {
	s, c := b.stream, b.stream.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resetStream(s, http2.ErrCodeCancel, errClosed)
	c.flush(false)
	if errors.Is(s.ended, io.EOF) {
		s.ended = errClosed
	}
	s.release()
	return nil
}
