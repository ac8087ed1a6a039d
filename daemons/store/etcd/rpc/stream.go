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
	conn     *conn
	id       uint32
	maxSpare int           // largest buffer, in bytes, that is kept between messages
	ready    chan struct{} // signals that there is something to receive

	// The connection's lock guards the fields below.
	sendWindow    int64  // flow-control window of the server
	data          []byte // arrived, but not received
	completeBytes int    // length of the complete messages in data
	unreturned    int    // bytes not yet given back to the window
	isDone        bool   // whether the stream has ended
	ended         error  // why it ended; nil if the server sent everything

	spare []byte // used only by the receiver
}

// stream begins a stream. It returns nil if that is not possible without waiting.
func (c *conn) stream(method string, headers []Header, request Request, all bool) *Stream {
	message := frameMessage(nil, request)
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(len(message))
	if c.isClosing || c.failed != nil || uint32(len(c.calls)+len(c.streams)) >= c.maxCalls ||
		size > min(c.sendWindow, c.initial) {
		return nil
	}
	s := &Stream{maxSpare: maxPooledBuffer, conn: c, ready: make(chan struct{}, 1), sendWindow: c.initial - size}
	if all {
		s.maxSpare = windowSize // the stream is short
	}
	s.id = c.appendCall(method, headers, 0, message, all)
	c.streams[s.id] = s
	c.flush(false)
	return s
}

var errStreamDone = errors.New("the server has said all")

// ErrWindowFull reports that the window has no room for a message.
var ErrWindowFull = errors.New("the server takes nothing more at present")

// Send sends a further request. It does not wait.
func (s *Stream) Send(request Request) error {
	message := frameMessage(nil, request)
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	size := int64(len(message))
	switch {
	case s.isDone:
		return cmp.Or(s.ended, errStreamDone)
	case size > min(s.conn.sendWindow, s.sendWindow) || len(s.conn.output.Buffer)+len(message) > maxPending:
		return ErrWindowFull
	}
	s.sendWindow -= size
	s.conn.appendMessage(s.id, message, false)
	s.conn.flush(false)
	return nil
}

// Receive calls take with the server's messages. It ends when the server has sent everything, take returns an error,
// ctx ends, or the stream fails, and closes the stream. more means that another message is available already. take may
// use the messages until the call for the last of them returns.
func (s *Stream) Receive(ctx context.Context, take func(message []byte, more bool) error) error {
	defer s.Close()
	for {
		data, isOver, err := s.next()
		if isOver {
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
			end := prefixSize + int(binary.BigEndian.Uint32(rest[1:]))
			message := rest[prefixSize:end]
			rest = rest[end:]
			if err := take(message, len(rest) > 0); err != nil {
				return err
			}
		}
		if cap(data) <= s.maxSpare {
			s.spare = data
		}
	}
}

// next returns the complete messages that have arrived. data is empty if there are none. isOver reports that the stream
// has ended, with err.
func (s *Stream) next() (data []byte, isOver bool, err error) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.completeBytes == 0 {
		return nil, s.isDone, s.ended
	}
	data = s.data[:s.completeBytes]
	s.data = append(s.spare[:0], s.data[s.completeBytes:]...)
	s.spare, s.completeBytes = nil, 0
	s.conn.sendWindowUpdate(s)
	s.conn.flush(false)
	return data, false, nil
}

// Close ends the stream.
func (s *Stream) Close() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if !s.isDone {
		s.conn.output.Reset(s.id, http2.ErrCodeCancel)
		s.conn.endStream(s, errClosed)
		s.conn.flush(false)
	}
}

// onMessages handles data of a stream. The caller holds c.mu.
func (c *conn) onMessages(s *Stream, f *http2.DataFrame) {
	s.data = append(s.data, f.Data()...)
	s.unreturned += int(f.Length)
	for len(s.data)-s.completeBytes >= prefixSize {
		end := s.completeBytes + prefixSize + int(binary.BigEndian.Uint32(s.data[s.completeBytes+1:]))
		if end > len(s.data) {
			if end > cap(s.data) && end <= s.maxSpare {
				s.data = slices.Grow(s.data, end-len(s.data))
			}
			break
		}
		s.completeBytes = end
	}
	if s.completeBytes > 0 {
		s.wake()
	} else {
		c.sendWindowUpdate(s) // a message may be larger than the window
	}
	if f.StreamEnded() {
		c.endStream(s, outcome{}.err())
	}
}

// sendWindowUpdate sends a window update if one is due. The caller holds c.mu.
func (c *conn) sendWindowUpdate(s *Stream) {
	if s.unreturned >= windowSize/4 && !s.isDone {
		c.output.WindowUpdate(s.id, s.unreturned)
		s.unreturned = 0
	}
}

// endStream ends a stream after its data. cause is nil if the server sent everything. The caller holds c.mu.
func (c *conn) endStream(s *Stream, cause error) {
	delete(c.streams, s.id)
	s.isDone, s.ended = true, cause
	s.wake()
	c.close()
}

func (s *Stream) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
