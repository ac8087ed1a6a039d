package h2

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/net/http2"
)

// maxCombinedBody is the maximum size in bytes of a request's body that is sent together with its headers.
const maxCombinedBody = 64 << 10

// smallBody returns a small body that is in memory already. It returns nil for others, which are sent as they are read.
func smallBody(r *http.Request, body io.ReadCloser) ([]byte, error) {
	if body == nil || r.GetBody == nil || r.ContentLength <= 0 || r.ContentLength > maxCombinedBody {
		return nil, nil
	}
	text := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(body, text); err != nil {
		return nil, fmt.Errorf("read the request's body: %w", err)
	}
	_ = body.Close() // it was read completely
	return text, nil
}

// send sends a request's body as the windows allow. If buffered is not nil, it is the rest of the body.
func (s *stream) send(body io.ReadCloser, buffered []byte) {
	defer body.Close()
	if buffered != nil {
		_ = s.sendPart(buffered, true)
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
			s.abort(fmt.Errorf("read the request's body: %w", err))
			return
		case expects > 0 && (sent > expects || last && sent < expects):
			s.abort(fmt.Errorf("the request's body has %d bytes instead of %d", sent, expects))
			return
		}
		if n == 0 && !last {
			continue
		}
		if !s.sendPart(part[:n], last) || last {
			return
		}
	}
}

// abort aborts the request.
func (s *stream) abort(cause error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.resetStream(s, http2.ErrCodeCancel, cause)
	s.c.flush(false)
}

// sendPart sends a part of the body when the windows allow. It returns false if the stream has ended.
func (s *stream) sendPart(part []byte, last bool) bool {
	c := s.c
	for {
		c.mu.Lock()
		if s.ended != nil {
			c.mu.Unlock()
			return false
		}
		n := min(int64(len(part)), c.sendWindow, s.sendWindow)
		if n > 0 || len(part) == 0 {
			n = max(n, 0)
			done := int(n) == len(part)
			c.bufferData(s, part[:n], last && done)
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
