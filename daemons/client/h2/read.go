package h2

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http2"

	"clusterctl/daemons/client/h2/framing"
)

// read dispatches incoming frames until the connection ends.
func (c *conn) read() {
	frames := framing.NewReader(c.nc)
	for {
		f, err := frames.ReadFrame()
		c.mu.Lock()
		if err == nil {
			err = c.handleFrame(f)
		} else if err = cmp.Or(c.writeErr, err); errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			c.fail(err)
		}
		ended := c.err != nil
		c.mu.Unlock()
		if ended {
			return
		}
	}
}

// handleFrame handles a frame. Any protocol violation closes the connection. The caller holds c.mu.
func (c *conn) handleFrame(f http2.Frame) error {
	c.lastReceived, c.pingSentAt = time.Now(), time.Time{}
	var err error
	switch f := f.(type) {
	case *http2.HeadersFrame:
		if c.headers.Begin(f) {
			err = c.handleHeaders(f.StreamID)
		}
	case *http2.ContinuationFrame:
		var complete bool
		if complete, err = c.headers.Continue(f); complete {
			err = c.handleHeaders(f.StreamID)
		}
	case *http2.DataFrame:
		c.handleData(f)
	case *http2.RSTStreamFrame:
		c.handleReset(f)
	case *http2.SettingsFrame:
		err = c.handleSettings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			c.output.Ping(http2.FlagPingAck, f.Data)
		}
	case *http2.GoAwayFrame:
		c.handleGoAway(f)
	case *http2.WindowUpdateFrame:
		err = c.handleWindowUpdate(f)
	case *http2.PushPromiseFrame:
		return errors.New("the server pushes a response that was not requested")
	}
	if err == nil && c.output.NeedsFlush() {
		// The reader must not write: a server whose output is not read may not read its input.
		go func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.flush(false)
		}()
	}
	return err
}

// handleHeaders handles the headers or trailers of an answer. Its stream may be gone already.
func (c *conn) handleHeaders(id uint32) error {
	c.fields = c.fields[:0]
	if err := c.headers.Decode(); err != nil {
		return err
	}
	s := c.streams[id]
	switch {
	case s == nil:
	case s.response != nil: // trailers are ignored
		if !c.headers.EndsStream {
			c.resetStream(s, http2.ErrCodeProtocol, errors.New("the server sends headers within its answer"))
			break
		}
		c.endStream(s, io.EOF)
	default:
		response, err := c.response(s)
		switch {
		case err != nil:
			c.resetStream(s, http2.ErrCodeProtocol, err)
		case response == nil: // an informational response; the final one follows
		default:
			s.response = response
			if c.headers.EndsStream {
				c.endStream(s, io.EOF)
			} else {
				s.wakeReader()
			}
		}
	}
	return nil
}

// response creates a response from its headers. It returns nil for an informational response.
func (c *conn) response(s *stream) (*http.Response, error) {
	if len(c.fields) == 0 || c.fields[0].Name != ":status" {
		return nil, errors.New("the server's answer has no status")
	}
	status := c.fields[0].Value
	code, err := strconv.Atoi(status)
	if err != nil || code < 100 || code > 999 {
		return nil, fmt.Errorf("the server's answer has the status %q", status)
	}
	if code < 200 {
		if c.headers.EndsStream || code == http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("the server's answer ends with the status %d", code)
		}
		return nil, nil
	}
	fields := c.fields[1:]
	header, values := make(http.Header, len(fields)), make([]string, len(fields))
	length := int64(-1)
	for i, f := range fields {
		name := c.headerNames.convert(f.Name, http.CanonicalHeaderKey)
		if before := header[name]; before != nil {
			header[name] = append(before, f.Value)
			continue
		}
		values[i] = f.Value
		header[name] = values[i : i+1 : i+1]
		if f.Name == "content-length" {
			if length, err = strconv.ParseInt(f.Value, 10, 64); err != nil || length < 0 {
				return nil, fmt.Errorf("the server's answer is said to have %q bytes", f.Value)
			}
		}
	}
	response := &http.Response{
		Status:        status + " " + http.StatusText(code),
		StatusCode:    code,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        header,
		ContentLength: length,
		Request:       s.request,
		Body:          body{s},
	}
	switch {
	case !c.headers.EndsStream:
		if s.expectedLength = length; s.request.Method == http.MethodHead {
			s.expectedLength = 0
		}
	case s.request.Method == http.MethodHead:
		response.Body = http.NoBody
	case length > 0:
		return nil, fmt.Errorf("the server's answer ends before its %d bytes", length)
	default:
		response.ContentLength, response.Body = 0, http.NoBody
	}
	return response, nil
}

func (c *conn) handleData(f *http2.DataFrame) {
	n := int(f.Length)
	if c.unacknowledged += n; c.unacknowledged >= connWindow/4 {
		c.output.WindowUpdate(0, c.unacknowledged)
		c.unacknowledged = 0
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return
	}
	s.unreturned += n
	data := f.Data()
	s.receivedLength += int64(len(data))
	switch {
	case s.response == nil || s.unreturned > streamWindow:
		c.resetStream(s, http2.ErrCodeProtocol, errors.New("the server sends what it may not"))
		return
	case s.expectedLength >= 0 &&
		(s.receivedLength > s.expectedLength || f.StreamEnded() && s.receivedLength < s.expectedLength):
		c.resetStream(s, http2.ErrCodeProtocol, fmt.Errorf("the server's answer has %d bytes instead of %d",
			s.receivedLength, s.expectedLength))
		return
	}
	s.consumed += n - len(data)
	s.buffer(data)
	if f.StreamEnded() {
		c.endStream(s, io.EOF)
		return
	}
	s.wakeReader()
}

// handleReset handles the reset of a stream.
func (c *conn) handleReset(f *http2.RSTStreamFrame) {
	s := c.streams[f.StreamID]
	switch {
	case s == nil:
	case f.ErrCode == http2.ErrCodeRefusedStream && s.response == nil:
		c.endStream(s, errNotProcessed) // the server did not process it
	default:
		c.endStream(s, http2.StreamError{StreamID: s.id, Code: f.ErrCode, Cause: errors.New("received from the " +
			"server")})
	}
}

// handleGoAway handles the server's GOAWAY frame. Requests that the server did not process are sent on another
// connection, and the others continue.
func (c *conn) handleGoAway(f *http2.GoAwayFrame) {
	c.isClosing = true
	for id, s := range c.streams {
		if id > f.LastStreamID {
			c.endStream(s, errNotProcessed)
		}
	}
	if len(c.streams) == 0 {
		c.fail(errors.New("the server takes no further requests on it"))
	}
}

func (c *conn) handleSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingMaxFrameSize:
			c.maxFrame = min(int(s.Val), 64<<10)
		case http2.SettingInitialWindowSize:
			for _, open := range c.streams {
				open.sendWindow += int64(s.Val) - c.initialWindow
				open.wakeSender()
			}
			c.initialWindow = int64(s.Val)
		case http2.SettingMaxConcurrentStreams:
			c.maxStreams = s.Val
		case http2.SettingHeaderTableSize:
			c.encoder.setTableSize(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.output.SettingsAck()
	return nil
}

func (c *conn) handleWindowUpdate(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if c.sendWindow += int64(f.Increment); c.sendWindow > math.MaxInt32 {
			return errors.New("the server's window has overflowed")
		}
		for _, s := range c.streams {
			s.wakeSender()
		}
		return nil
	}
	if s := c.streams[f.StreamID]; s != nil {
		s.sendWindow = min(s.sendWindow+int64(f.Increment), math.MaxInt32)
		s.wakeSender()
	}
	return nil
}

// resetStream ends a stream and buffers a reset for the server. The caller holds c.mu.
func (c *conn) resetStream(s *stream, code http2.ErrCode, cause error) {
	if c.streams[s.id] != s {
		return
	}
	if c.err == nil {
		c.output.Reset(s.id, code)
	}
	c.endStream(s, cause)
}
