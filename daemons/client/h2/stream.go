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
	change  chan struct{} // receives a value when the answer changes

	response *http.Response // nil until the headers have arrived
	ended    error          // io.EOF if the answer is complete
	text     []byte         // received body; text[read:] is not read yet
	read     int
	expects  int64 // length of the body; negative if unknown
	got      int64
	ahead    int // received bytes that are not returned to the stream's window yet
	taken    int // the part of ahead that was read or is discarded
	stop     func() bool

	sent    bool          // whether the request is sent completely
	room    int64         // send window of the stream
	sending chan struct{} // receives a value when the window grows or the stream ends; nil if no body is being sent
}

// changed wakes the reader of the answer. The caller holds c.mu.
func (s *stream) changed() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// mayGoOn wakes the sender of the body, since the windows may have grown. The caller holds c.mu.
func (s *stream) mayGoOn() {
	if s.sending == nil {
		return
	}
	select {
	case s.sending <- struct{}{}:
	default:
	}
}

// end is called once, when the stream is removed from the connection. The caller holds c.mu.
func (s *stream) end(why error) {
	s.ended = why
	if s.stop != nil {
		s.stop()
	}
	s.changed()
	s.mayGoOn()
}

// answer waits for the answer's headers. From then on, the end of the request's context ends the body.
func (s *stream) answer(ctx context.Context) (*http.Response, error) {
	for {
		select {
		case <-s.change:
		case <-ctx.Done():
			s.cancel(ctx.Err())
		}
		s.c.mu.Lock()
		response, ended := s.response, s.ended
		if response != nil && ended == nil && ctx.Done() != nil && s.stop == nil {
			s.stop = context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })
		}
		if len(s.text) > s.read || ended != nil {
			s.changed() // wake the reader of the body
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
func (s *stream) cancel(why error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.abort(s, http2.ErrCodeCancel, why)
	s.c.flush(false)
}

// texts holds buffers of bodies, of up to twice the window, which is the size that appending may reach. A watch of a
// large cluster would otherwise allocate such buffers again and again. Unused ones are garbage collected.
var texts = sync.Pool{New: func() any { return new([]byte) }}

// buffer appends a part of the answer's body. The caller holds c.mu.
func (s *stream) buffer(part []byte) {
	switch left := len(s.text) - s.read; {
	case s.text == nil:
		s.text = (*texts.Get().(*[]byte))[:0]
	case left <= s.read:
		// Reuse the part that was read. Otherwise a reader that is always behind would make the buffer hold all of a
		// long answer.
		s.text, s.read = s.text[:copy(s.text, s.text[s.read:])], 0
	}
	s.text = append(s.text, part...)
}

// release returns the buffer to the pool. The caller holds c.mu.
func (s *stream) release() {
	if text := s.text; cap(text) > 0 && cap(text) <= 2*window {
		texts.Put(&text)
	}
	s.text, s.read = nil, 0
}

// body is an answer's body.
type body struct{ s *stream }

var errClosed = errors.New("the answer's body has been closed")

// Read returns received data. An incomplete body ends with io.ErrUnexpectedEOF, or with the error of the request's
// context.
func (b body) Read(p []byte) (int, error) {
	s, c := b.s, b.s.c
	for {
		c.mu.Lock()
		if n := copy(p, s.text[s.read:]); n > 0 || len(p) == 0 {
			s.read += n
			if s.read == len(s.text) && cap(s.text) > mostKept {
				s.release() // a watch may send nothing for long after a lot of data
			}
			s.took(n)
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
			<-s.change
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

// took returns read bytes to the stream's window. The caller holds c.mu.
func (s *stream) took(n int) {
	if s.ended != nil {
		return
	}
	if s.taken += n; s.taken >= window/4 {
		s.c.windowUpdate(s.id, s.taken)
		s.ahead -= s.taken
		s.taken = 0
		s.c.flush(false)
	}
}

// Close aborts the answer if it has not ended.
func (b body) Close() error {
	s, c := b.s, b.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abort(s, http2.ErrCodeCancel, errClosed)
	c.flush(false)
	if errors.Is(s.ended, io.EOF) {
		s.ended = errClosed
	}
	s.release()
	return nil
}
