package h2

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http2"
)

// read dispatches incoming frames until the connection ends.
func (c *conn) read() {
	framer := http2.NewFramer(io.Discard, bufio.NewReaderSize(c.nc, 16<<10))
	framer.SetMaxReadFrameSize(16 << 10)
	framer.SetReuseFrames()
	for {
		f, err := framer.ReadFrame()
		c.mu.Lock()
		if err == nil {
			err = c.on(f)
		} else if err = cmp.Or(c.mute, err); errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			c.fail(err)
		}
		ended := c.failed != nil
		c.mu.Unlock()
		if ended {
			return
		}
	}
}

// on handles a frame. Any protocol violation closes the connection. The caller holds c.mu.
func (c *conn) on(f http2.Frame) error {
	c.heard, c.asked = time.Now(), time.Time{}
	var err error
	switch f := f.(type) {
	case *http2.HeadersFrame:
		c.fragments = append(c.fragments[:0], f.HeaderBlockFragment()...)
		c.ended = f.StreamEnded()
		if f.HeadersEnded() {
			err = c.onHeaders(f.StreamID)
		}
	case *http2.ContinuationFrame:
		if c.fragments = append(c.fragments, f.HeaderBlockFragment()...); len(c.fragments) > mostHeaders {
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
			c.out = append(c.out, f.Data[:]...)
		}
	case *http2.GoAwayFrame:
		c.onGoAway(f)
	case *http2.WindowUpdateFrame:
		err = c.onWindowUpdate(f)
	case *http2.PushPromiseFrame:
		return errors.New("the server pushes what nobody asked for")
	}
	if err == nil && len(c.out) > 0 && !c.flushing {
		// The reader must not write: a server whose output is not read may not read its input.
		go func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.flush(false)
		}()
	}
	return err
}

// onHeaders handles the headers or trailers of an answer. Its stream may be gone already.
func (c *conn) onHeaders(id uint32) error {
	c.fields = c.fields[:0]
	if _, err := c.decoder.Write(c.fragments); err != nil {
		return fmt.Errorf("read the server's headers: %w", err)
	}
	if err := c.decoder.Close(); err != nil {
		return fmt.Errorf("read the server's headers: %w", err)
	}
	s := c.streams[id]
	switch {
	case s == nil:
	case s.response != nil: // trailers are ignored
		if !c.ended {
			c.abort(s, http2.ErrCodeProtocol, errors.New("the server sends headers within its answer"))
			break
		}
		c.end(s, io.EOF)
	default:
		response, err := c.response(s)
		switch {
		case err != nil:
			c.abort(s, http2.ErrCodeProtocol, err)
		case response == nil: // an informational response; the final one follows
		default:
			s.response = response
			if c.ended {
				c.end(s, io.EOF)
			} else {
				s.changed()
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
		if c.ended || code == http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("the server's answer ends with the status %d", code)
		}
		return nil, nil
	}
	fields := c.fields[1:]
	header, values := make(http.Header, len(fields)), make([]string, len(fields))
	length := int64(-1)
	for i, f := range fields {
		name := c.names.of(f.Name, http.CanonicalHeaderKey)
		if had := header[name]; had != nil {
			header[name] = append(had, f.Value)
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
	case !c.ended:
		if s.expects = length; s.request.Method == http.MethodHead {
			s.expects = 0
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

func (c *conn) onData(f *http2.DataFrame) {
	n := int(f.Length)
	if c.owed += n; c.owed >= connWindow/4 {
		c.windowUpdate(0, c.owed)
		c.owed = 0
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return
	}
	s.ahead += n
	data := f.Data()
	s.got += int64(len(data))
	switch {
	case s.response == nil || s.ahead > window:
		c.abort(s, http2.ErrCodeProtocol, errors.New("the server sends what it may not"))
		return
	case s.expects >= 0 && (s.got > s.expects || f.StreamEnded() && s.got < s.expects):
		c.abort(
			s,
			http2.ErrCodeProtocol,
			fmt.Errorf("the server's answer has %d bytes instead of %d", s.got, s.expects),
		)
		return
	}
	s.taken += n - len(data)
	s.buffer(data)
	if f.StreamEnded() {
		c.end(s, io.EOF)
		return
	}
	s.changed()
}

// onReset handles the reset of a stream.
func (c *conn) onReset(f *http2.RSTStreamFrame) {
	s := c.streams[f.StreamID]
	switch {
	case s == nil:
	case f.ErrCode == http2.ErrCodeRefusedStream && s.response == nil:
		c.end(s, errElsewhere) // the server did not process it
	default:
		c.end(s, http2.StreamError{StreamID: s.id, Code: f.ErrCode, Cause: errors.New("received from the server")})
	}
}

// onGoAway handles the server's GOAWAY frame. Requests that the server did not process are sent on another connection,
// and the others continue.
func (c *conn) onGoAway(f *http2.GoAwayFrame) {
	c.going = true
	for id, s := range c.streams {
		if id > f.LastStreamID {
			c.end(s, errElsewhere)
		}
	}
	if len(c.streams) == 0 {
		c.fail(errors.New("the server takes no further requests on it"))
	}
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
			c.maxFrame = min(int(s.Val), 64<<10)
		case http2.SettingInitialWindowSize:
			for _, open := range c.streams {
				open.room += int64(s.Val) - c.initial
				open.mayGoOn()
			}
			c.initial = int64(s.Val)
		case http2.SettingMaxConcurrentStreams:
			c.most = s.Val
		case http2.SettingHeaderTableSize:
			c.heads.limit(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	return nil
}

func (c *conn) onWindowUpdate(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if c.room += int64(f.Increment); c.room > math.MaxInt32 {
			return errors.New("the server's window has overflowed")
		}
		for _, s := range c.streams {
			s.mayGoOn()
		}
		return nil
	}
	if s := c.streams[f.StreamID]; s != nil {
		s.room = min(s.room+int64(f.Increment), math.MaxInt32)
		s.mayGoOn()
	}
	return nil
}

// abort ends a stream and buffers a reset for the server. The caller holds c.mu.
func (c *conn) abort(s *stream, code http2.ErrCode, why error) {
	if c.streams[s.id] != s {
		return
	}
	if c.failed == nil {
		c.reset(s.id, code)
	}
	c.end(s, why)
}
