package rpc

import (
	"errors"
	"math"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/client/h2/framing"
)

// readFrames handles frames until the connection ends.
func (c *conn) readFrames() {
	frames := framing.NewReader(c.netConn)
	for {
		f, err := frames.ReadFrame()
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
		if c.responseHeaders.Begin(f) {
			err = c.onHeaders(f.StreamID)
		}
	case *http2.ContinuationFrame:
		var complete bool
		if complete, err = c.responseHeaders.Continue(f); complete {
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
			c.output.Ping(http2.FlagPingAck, f.Data)
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
	if err := c.responseHeaders.Decode(); err != nil {
		return err
	}
	// The call may have been abandoned.
	if k := c.calls[id]; k != nil {
		if k.outcome = c.blockStatus; c.responseHeaders.EndsStream {
			c.endCall(k, nil)
		}
	} else if s := c.streams[id]; s != nil && c.responseHeaders.EndsStream {
		c.endStream(s, c.blockStatus.err())
	}
	return nil
}

func (c *conn) onData(f *http2.DataFrame) {
	n := int(f.Length)
	if c.unreturned += n; c.unreturned >= windowSize/4 {
		c.output.WindowUpdate(0, c.unreturned)
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
		c.output.Reset(k.id, http2.ErrCodeCancel)
		c.endCall(k, status.Errorf(codes.ResourceExhausted, "the answer is larger than %d bytes", maxResponse))
	case f.StreamEnded():
		c.endCall(k, nil) // ended without a status
	case k.unreturned >= windowSize/4:
		c.output.WindowUpdate(k.id, k.unreturned)
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
	c.output.SettingsAck()
	return nil
}
