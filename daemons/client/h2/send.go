package h2

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/net/http2"
)

// mostAtOnce is how large a request's body may be that is sent with its headers.
const mostAtOnce = 64 << 10

// whole reads a body that lies in memory and is small; nil: it is sent as it comes.
func whole(r *http.Request, body io.ReadCloser) ([]byte, error) {
	if body == nil || r.GetBody == nil || r.ContentLength <= 0 || r.ContentLength > mostAtOnce {
		return nil, nil
	}
	text := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(body, text); err != nil {
		return nil, fmt.Errorf("read the request's body: %w", err)
	}
	_ = body.Close() // there is nothing left in it
	return text, nil
}

// send sends a request's body as there is room for it. What was read of it already is all of it.
func (s *stream) send(body io.ReadCloser, had []byte) {
	defer body.Close()
	if had != nil {
		_ = s.part(had, true)
		return
	}
	part := make([]byte, 16<<10)
	var sent int64
	for {
		n, err := body.Read(part)
		sent += int64(n)
		last := errors.Is(err, io.EOF)
		switch expects := s.request.ContentLength; {
		case err != nil && !last:
			s.give(fmt.Errorf("read the request's body: %w", err))
			return
		case expects > 0 && (sent > expects || last && sent < expects):
			s.give(fmt.Errorf("the request's body has %d bytes instead of %d", sent, expects))
			return
		}
		if n == 0 && !last {
			continue
		}
		if !s.part(part[:n], last) || last {
			return
		}
	}
}

// give gives the request up.
func (s *stream) give(why error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.abort(s, http2.ErrCodeCancel, why)
	s.c.flush(false)
}

// part sends a part of the body when there is room for it; false: nobody wants it any more.
func (s *stream) part(part []byte, last bool) bool {
	c := s.c
	for {
		c.mu.Lock()
		if s.ended != nil {
			c.mu.Unlock()
			return false
		}
		n := min(int64(len(part)), c.room, s.room)
		if n > 0 || len(part) == 0 {
			n = max(n, 0)
			done := int(n) == len(part)
			c.data(s, part[:n], last && done)
			part = part[n:]
			c.flush(false)
			if done {
				c.mu.Unlock()
				return true
			}
		}
		c.mu.Unlock()
		<-s.sending
	}
}
