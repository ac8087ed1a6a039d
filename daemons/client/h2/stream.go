package h2

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
)

// stream is a request and its answer. What it has is guarded by its connection's lock.
type stream struct {
	c       *conn
	id      uint32
	request *http.Request
	change  chan struct{} // told of what happens to the answer

	response *http.Response // nil: it has not begun
	ended    error          // io.EOF when it is complete
	text     []byte         // of the answer's body, from read on not read yet
	read     int
	expects  int64 // bytes of the body; less than 0: any number
	got      int64
	ahead    int // of what has come, not given back to the stream's window
	taken    int // of that, what has been read or never will be
	stop     func() bool

	sent    bool          // whether all of the request is
	room    int64         // what the server takes of its body
	sending chan struct{} // told that there is room again, or that nothing more is to be sent; nil: nobody is at it
}

// changed tells who waits. The lock is held.
func (s *stream) changed() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// mayGoOn tells who sends the request's body that there may be room. The lock is held.
func (s *stream) mayGoOn() {
	if s.sending == nil {
		return
	}
	select {
	case s.sending <- struct{}{}:
	default:
	}
}

// end is called once, when the stream is no longer the connection's. The lock is held.
func (s *stream) end(why error) {
	s.ended = why
	if s.stop != nil {
		s.stop()
	}
	s.changed()
	s.mayGoOn()
}

// answer waits for the answer's headers. From then on its body ends with the request's context.
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
			s.changed() // the body is looked at next
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

// cancel ends the stream if it has not ended.
func (s *stream) cancel(why error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.abort(s, http2.ErrCodeCancel, why)
	s.c.flush(false)
}

// texts are buffers of bodies that have been read, of up to twice the window, which is what growing to one comes to: a
// watch that is told of a large cluster would make such a one again and again. The collector of garbage takes those
// that nobody uses again.
var texts = sync.Pool{New: func() any { return new([]byte) }}

// buffer keeps a part of the answer's body until it is read. The lock is held.
func (s *stream) buffer(part []byte) {
	switch left := len(s.text) - s.read; {
	case s.text == nil:
		s.text = (*texts.Get().(*[]byte))[:0]
	case left <= s.read:
		// what has been read makes room: a reader that is always behind would have all of a long answer kept
		s.text, s.read = s.text[:copy(s.text, s.text[s.read:])], 0
	}
	s.text = append(s.text, part...)
}

// release gives the buffer back. The lock is held.
func (s *stream) release() {
	if text := s.text; cap(text) > 0 && cap(text) <= 2*window {
		texts.Put(&text)
	}
	s.text, s.read = nil, 0
}

// body is an answer's body.
type body struct{ s *stream }

var errClosed = errors.New("the answer's body has been closed")

// Read returns what has come. A body that is not complete ends with io.ErrUnexpectedEOF, or with the error of the
// request's context.
func (b body) Read(p []byte) (int, error) {
	s, c := b.s, b.s.c
	for {
		c.mu.Lock()
		if n := copy(p, s.text[s.read:]); n > 0 || len(p) == 0 {
			s.read += n
			if s.read == len(s.text) && cap(s.text) > mostKept {
				s.release() // a watch may say nothing for long after much
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

// took gives what was read back to the stream's window. The lock is held.
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

// Close ends the answer if it has not ended.
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
