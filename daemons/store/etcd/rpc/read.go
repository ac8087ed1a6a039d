package rpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// readFrames handles frames until the connection ends.
func (c *conn) readFrames() {
	framer := http2.NewFramer(io.Discard, bufio.NewReaderSize(c.netConn, 16<<10))
	framer.SetMaxReadFrameSize(16 << 10)
	framer.SetReuseFrames()
	for {
		f, err := framer.ReadFrame()
		if err == nil {
			err = c.handleFrame(f)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// handleFrame handles one frame. A frame that a server must not send ends the connection.
func (c *conn) handleFrame(f http2.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastReadAt, c.pingedAt = time.Now(), time.Time{}
	var err error
	switch f := f.(type) {
	case *http2.HeadersFrame:
		c.fragments = append(c.fragments[:0], f.HeaderBlockFragment()...)
		c.endsStream = f.StreamEnded()
		if f.HeadersEnded() {
			err = c.onHeaders(f.StreamID)
		}
	case *http2.ContinuationFrame:
		if c.fragments = append(c.fragments, f.HeaderBlockFragment()...); len(c.fragments) > maxPooledBuffer {
			return errors.New("the server's headers are too large")
		}
		if f.HeadersEnded() {
			err = c.onHeaders(f.StreamID)
		}
	case *http2.DataFrame:
		c.onData(f)
	case *http2.RSTStreamFrame:
		c.onReset(f)
	case *http2.SettingsFrame:
		err = c.onSettings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			c.frame(http2.FramePing, http2.FlagPingAck, 0, 8)
			c.output = append(c.output, f.Data[:]...)
		}
	case *http2.GoAwayFrame:
		c.onGoAway(f)
	case *http2.WindowUpdateFrame:
		// Calls need no window, because they are sent as a whole.
		if s := c.streams[f.StreamID]; s != nil {
			s.sendWindow = min(s.sendWindow+int64(f.Increment), math.MaxInt32)
		} else if f.StreamID == 0 {
			if c.sendWindow += int64(f.Increment); c.sendWindow > math.MaxInt32 {
				return errors.New("the server's window has overflowed")
			}
		}
	case *http2.PushPromiseFrame:
		return errors.New("the server pushes a response that was not requested")
	}
	if err == nil {
		c.flush(false)
	}
	return err
}

// onHeaders handles the headers at the beginning or the end of a response.
func (c *conn) onHeaders(id uint32) error {
	c.blockStatus = outcome{}
	if _, err := c.headerDecoder.Write(c.fragments); err != nil {
		return fmt.Errorf("read the server's headers: %w", err)
	}
	if err := c.headerDecoder.Close(); err != nil {
		return fmt.Errorf("read the server's headers: %w", err)
	}
	// The call may have been abandoned.
	if k := c.calls[id]; k != nil {
		if k.outcome = c.blockStatus; c.endsStream {
			c.endCall(k, nil)
		}
	} else if s := c.streams[id]; s != nil && c.endsStream {
		c.endStream(s, c.blockStatus.err())
	}
	return nil
}

func (c *conn) onData(f *http2.DataFrame) {
	n := int(f.Length)
	if c.unreturned += n; c.unreturned >= windowSize/4 {
		c.windowUpdate(0, c.unreturned)
		c.unreturned = 0
	}
	if s := c.streams[f.StreamID]; s != nil {
		c.onMessages(s, f)
		return
	}
	k := c.calls[f.StreamID]
	if k == nil {
		return
	}
	k.response = append(k.response, f.Data()...)
	switch k.unreturned += n; {
	case len(k.response) > maxResponse:
		c.reset(k.id, http2.ErrCodeCancel)
		c.endCall(k, status.Errorf(codes.ResourceExhausted, "the answer is larger than %d bytes", maxResponse))
	case f.StreamEnded():
		c.endCall(k, nil) // ended without a status
	case k.unreturned >= windowSize/4:
		c.windowUpdate(k.id, k.unreturned)
		k.unreturned = 0
	}
}

// onReset ends a call or stream that the server reset.
func (c *conn) onReset(f *http2.RSTStreamFrame) {
	if s := c.streams[f.StreamID]; s != nil {
		c.endStream(s, status.Errorf(codes.Unavailable, "the server has ended the stream: %v", f.ErrCode))
		return
	}
	k := c.calls[f.StreamID]
	switch {
	case k == nil:
	case f.ErrCode == http2.ErrCodeRefusedStream:
		c.endCall(k, ErrNotMade) // the server has not processed it
	default:
		c.endCall(k, status.Errorf(codes.Unavailable, "the server has ended the call: %v", f.ErrCode))
	}
}

// onGoAway handles GOAWAY. Calls that the server has not begun fail with ErrNotMade, and the others continue to their
// end. Streams have no end of their own, so they end now.
func (c *conn) onGoAway(f *http2.GoAwayFrame) {
	c.isClosing = true
	for id, k := range c.calls {
		if id > f.LastStreamID {
			c.endCall(k, ErrNotMade)
		}
	}
	for _, s := range c.streams {
		c.endStream(s, status.Errorf(codes.Unavailable, "the server at %s ends", c.authority))
	}
	c.close()
}

func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingMaxFrameSize:
			c.maxFrame = min(int(s.Val), 16<<10)
		case http2.SettingInitialWindowSize:
			for _, open := range c.streams {
				open.sendWindow += int64(s.Val) - c.initial
			}
			c.initial = int64(s.Val)
		case http2.SettingMaxConcurrentStreams:
			c.maxCalls = s.Val
		case http2.SettingHeaderTableSize:
			c.headers.setTableSize(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	return nil
}
