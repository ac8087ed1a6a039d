package rpc

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stream is a call with many response messages. It buffers at most a window, or one message if that is larger.
type Stream struct {
	c     *conn
	id    uint32
	keep  int           // largest buffer, in bytes, that is kept between messages
	ready chan struct{} // signals that there is something to receive

	// The connection's lock guards the fields below.
	room  int64  // flow-control window of the server
	data  []byte // arrived, but not received
	whole int    // length of the complete messages in data
	owed  int    // bytes not yet given back to the window
	over  bool   // whether the stream has ended
	ended error  // why it ended; nil if the server sent everything

	spare []byte // used only by the receiver
}

// stream begins a stream. It returns nil if that is not possible without waiting.
func (c *conn) stream(method string, headers []Header, request Request, all bool) *Stream {
	message := framed(nil, request)
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(len(message))
	if c.going || c.failed != nil || uint32(len(c.calls)+len(c.streams)) >= c.most || size > min(c.room, c.initial) {
		return nil
	}
	s := &Stream{keep: mostKept, c: c, ready: make(chan struct{}, 1), room: c.initial - size}
	if all {
		s.keep = window // the stream is short
	}
	s.id = c.say(method, headers, 0, message, all)
	c.streams[s.id] = s
	c.flush(false)
	return s
}

var errOver = errors.New("the server has said all")

// ErrNoRoom reports that the window has no room for a message.
var ErrNoRoom = errors.New("the server takes nothing more at present")

// Send sends a further request. It does not wait.
func (s *Stream) Send(request Request) error {
	message := framed(nil, request)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	size := int64(len(message))
	switch {
	case s.over:
		return cmp.Or(s.ended, errOver)
	case size > min(s.c.room, s.room) || len(s.c.out)+len(message) > mostPending:
		return ErrNoRoom
	}
	s.room -= size
	s.c.message(s.id, message, false)
	s.c.flush(false)
	return nil
}

// Receive calls take with the server's messages. It ends when the server has sent everything, take returns an error,
// ctx ends, or the stream fails, and closes the stream. more means that another message is available already. take may
// use the messages until the call for the last of them returns.
func (s *Stream) Receive(ctx context.Context, take func(message []byte, more bool) error) error {
	defer s.Close()
	for {
		data, over, err := s.next()
		if over {
			return err
		}
		if len(data) == 0 {
			select {
			case <-s.ready:
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
			continue
		}
		for rest := data; len(rest) > 0; {
			if rest[0] != 0 {
				return status.Error(codes.Internal, "the server's message is compressed, which was not offered")
			}
			end := prefix + int(binary.BigEndian.Uint32(rest[1:]))
			message := rest[prefix:end]
			rest = rest[end:]
			if err := take(message, len(rest) > 0); err != nil {
				return err
			}
		}
		if cap(data) <= s.keep {
			s.spare = data
		}
	}
}

// next returns the complete messages that have arrived. There may be none yet, or no more.
func (s *Stream) next() (data []byte, over bool, err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.whole == 0 {
		return nil, s.over, s.ended
	}
	data = s.data[:s.whole]
	s.data = append(s.spare[:0], s.data[s.whole:]...)
	s.spare, s.whole = nil, 0
	s.c.giveBack(s)
	s.c.flush(false)
	return data, false, nil
}

// Close ends the stream.
func (s *Stream) Close() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.over {
		s.c.reset(s.id, http2.ErrCodeCancel)
		s.c.endStream(s, errClosed)
		s.c.flush(false)
	}
}

// onMessages handles data of a stream. The caller holds c.mu.
func (c *conn) onMessages(s *Stream, f *http2.DataFrame) {
	s.data = append(s.data, f.Data()...)
	s.owed += int(f.Length)
	for len(s.data)-s.whole >= prefix {
		end := s.whole + prefix + int(binary.BigEndian.Uint32(s.data[s.whole+1:]))
		if end > len(s.data) {
			if end > cap(s.data) && end <= s.keep {
				s.data = slices.Grow(s.data, end-len(s.data))
			}
			break
		}
		s.whole = end
	}
	if s.whole > 0 {
		s.wake()
	} else {
		c.giveBack(s) // a message may be larger than the window
	}
	if f.StreamEnded() {
		c.endStream(s, outcome{}.err())
	}
}

// giveBack sends a window update if one is due. The caller holds c.mu.
func (c *conn) giveBack(s *Stream) {
	if s.owed >= window/4 && !s.over {
		c.windowUpdate(s.id, s.owed)
		s.owed = 0
	}
}

// endStream ends a stream after its data. why is nil if the server sent everything. The caller holds c.mu.
func (c *conn) endStream(s *Stream, why error) {
	delete(c.streams, s.id)
	s.over, s.ended = true, why
	s.wake()
	c.close()
}

func (s *Stream) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
