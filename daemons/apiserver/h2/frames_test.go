package h2_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"clusterctl/daemons/apiserver/h2"
)

// rawClient is a client that can send arbitrary frames.
type rawClient struct {
	*http2.Framer
	t     *testing.T
	conn  *tls.Conn
	block bytes.Buffer
	enc   *hpack.Encoder
}

func dialRaw(t *testing.T, address string, config *tls.Config, settings ...http2.Setting) *rawClient {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, conn: conn, Framer: http2.NewFramer(conn, conn)}
	c.enc = hpack.NewEncoder(&c.block)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return c
}

// begin begins a stream.
func (c *rawClient) begin(id uint32, method string, end bool, more ...string) {
	c.t.Helper()
	if err := c.tryBegin(id, method, end, more...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) tryBegin(id uint32, method string, end bool, more ...string) error {
	c.block.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "x", ":path", fmt.Sprint("/", id)},
		more...)
	for i := 0; i < len(fields); i += 2 {
		if err := c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	return c.WriteHeaders(
		http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndStream: end, EndHeaders: true},
	)
}

// readUntil reads frames until matches returns true.
func (c *rawClient) readUntil(what string, matches func(any) bool) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
		if matches(f) {
			return
		}
	}
}

func (c *rawClient) isGoAway(f any, code http2.ErrCode) bool {
	away, ok := f.(*http2.GoAwayFrame)
	return ok && away.ErrCode == code
}

func isReset(f any, id uint32, code http2.ErrCode) bool {
	reset, ok := f.(*http2.RSTStreamFrame)
	return ok && reset.StreamID == id && reset.ErrCode == code
}

// By cancelling streams, a client cannot have more handlers running than it may have streams.
// Proves S12.
func TestCancelledStreamsDoNotAddHandlers(t *testing.T) {
	var running, maximum atomic.Int32
	release := make(chan struct{})
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for {
			if m := maximum.Load(); n <= m || maximum.CompareAndSwap(m, n) {
				break
			}
		}
		<-release // ignores its context
	})
	c := dialRaw(t, address, config)
	go func() {
		for id := uint32(1); id < 4000; id += 2 {
			if c.tryBegin(id, http.MethodGet, true) != nil || c.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				return
			}
		}
	}()
	c.readUntil("a calming word", func(f any) bool { return c.isGoAway(f, http2.ErrCodeEnhanceYourCalm) })
	close(release)
	if maximum.Load() > 250 {
		t.Errorf("%d handlers ran at once", maximum.Load())
	}
}

func TestStreamsBeyondTheLimitAreRefused(t *testing.T) {
	release := make(chan struct{})
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) { <-release })
	c := dialRaw(t, address, config)
	for i := range uint32(251) {
		c.begin(2*i+1, http.MethodGet, true)
	}
	c.readUntil("a refusal", func(f any) bool { return isReset(f, 501, http2.ErrCodeRefusedStream) })
	close(release)
	answers := 0
	c.readUntil("250 answers", func(f any) bool {
		if headers, ok := f.(*http2.MetaHeadersFrame); ok && headers.PseudoValue("status") == "200" {
			answers++
		}
		return answers == 250
	})
}

func TestClientsThatReadNothingAreNotServed(t *testing.T) {
	address, config, _ := serve(t, &h2.Server{}, func(http.ResponseWriter, *http.Request) {})
	c := dialRaw(t, address, config)
	ping := append([]byte{0, 0, 8, byte(http2.FramePing), 0, 0, 0, 0, 0}, make([]byte, 8)...)
	many := bytes.Repeat(ping, 1000)
	for {
		if _, err := c.conn.Write(many); err != nil {
			return // the connection was closed, long before memory ran out
		}
	}
}

// Frames on a stream that the client has reset are an error, even if the server had answered it and discarded its body.
// Proves S07.
func TestFramesOnResetStreamsAreErrors(t *testing.T) {
	address, config, _ := serve(t, &h2.Server{}, func(http.ResponseWriter, *http.Request) {})
	c := dialRaw(t, address, config)
	for _, id := range []uint32{1, 3} {
		c.begin(id, http.MethodGet, false)
		c.readUntil("word that no body is wanted", func(f any) bool { return isReset(f, id, http2.ErrCodeNo) })
		// Frames that may have been on their way are ignored.
		if err := c.WriteData(id, false, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := c.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.WriteData(1, false, []byte("x")); err != nil {
		t.Fatal(err)
	}
	c.readUntil("an error of the stream", func(f any) bool { return isReset(f, 1, http2.ErrCodeStreamClosed) })
	c.begin(3, http.MethodGet, true)
	c.readUntil("an error of the connection", func(f any) bool { return c.isGoAway(f, http2.ErrCodeStreamClosed) })
}

// A client that is still sending a short body gets the response and no RST_STREAM.
func TestShortBodiesAreDiscardedAfterTheResponse(t *testing.T) {
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusForbidden)
	})
	c := dialRaw(t, address, config)
	answered := func(id uint32) func(any) bool {
		return func(f any) bool {
			if reset, ok := f.(*http2.RSTStreamFrame); ok {
				t.Fatalf("stream %d was reset: %v", reset.StreamID, reset.ErrCode)
			}
			headers, ok := f.(*http2.MetaHeadersFrame)
			return ok && headers.StreamID == id && headers.PseudoValue("status") == "403" && headers.StreamEnded()
		}
	}
	c.begin(1, http.MethodPatch, false, "content-length", "4")
	c.readUntil("the response", answered(1))
	for _, end := range []bool{false, true} {
		if err := c.WriteData(1, end, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	c.begin(3, http.MethodPatch, false, "content-length", "2")
	c.readUntil("the next response", answered(3))
	// The stream is closed after the end of its body.
	if err := c.WriteData(1, false, []byte("x")); err != nil {
		t.Fatal(err)
	}
	c.readUntil("an error of the stream", func(f any) bool { return isReset(f, 1, http2.ErrCodeStreamClosed) })
	// The server waits only a while for a body that does not arrive.
	c.readUntil("a reset", func(f any) bool { return isReset(f, 3, http2.ErrCodeNo) })
	// A long body, and one that waits for 100 Continue, are refused at once.
	c.begin(5, http.MethodPatch, false, "content-length", "2000000")
	c.readUntil("a reset", func(f any) bool { return isReset(f, 5, http2.ErrCodeNo) })
	c.begin(7, http.MethodPatch, false, "content-length", "2", "expect", "100-continue")
	c.readUntil("a reset", func(f any) bool { return isReset(f, 7, http2.ErrCodeNo) })
}

func TestTooLongHeadersGetStatus431(t *testing.T) {
	address, config, _ := serve(t, &h2.Server{}, func(http.ResponseWriter, *http.Request) { t.Error("it was handled") })
	c := dialRaw(t, address, config)
	c.begin(1, http.MethodGet, true, "long", strings.Repeat("x", 16<<10-100), "longer", strings.Repeat("y", 200))
	c.readUntil("431", func(f any) bool {
		headers, ok := f.(*http2.MetaHeadersFrame)
		return ok && headers.PseudoValue("status") == "431"
	})
}

func TestLargeHeadersAreLimited(t *testing.T) {
	const large = 1 << 20
	start, release := make(chan int, 10), make(chan struct{})
	address, config, _ := serve(t, &h2.Server{}, func(_ http.ResponseWriter, r *http.Request) {
		start <- len(r.Header.Get("large"))
		<-release
	}, func(s *http.Server) { s.MaxHeaderBytes = large })
	c := dialRaw(t, address, config)
	text := strings.Repeat("x", large-1000)
	for i := range uint32(5) {
		c.beginLong(2*i+1, "large", text)
	}
	c.readUntil("a refusal", func(f any) bool { return isReset(f, 9, http2.ErrCodeRefusedStream) })
	for range 4 {
		if n := <-start; n != len(text) {
			t.Errorf("a header has %d bytes, %d were sent", n, len(text))
		}
	}
	// The headers of a cancelled stream count until its handler has ended. Streams with small headers continue.
	if err := c.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	c.beginLong(11, "large", text)
	c.readUntil("another refusal", func(f any) bool { return isReset(f, 11, http2.ErrCodeRefusedStream) })
	c.begin(13, http.MethodGet, true, "small", "x")
	if n := <-start; n != 0 {
		t.Errorf("the small one has a header of %d bytes", n)
	}
	close(release)
	answers := 0
	c.readUntil("answers", func(f any) bool {
		if headers, ok := f.(*http2.MetaHeadersFrame); ok && headers.PseudoValue("status") == "200" {
			answers++
		}
		return answers == 4
	})
	c.beginLong(15, "large", text) // there is room again
	c.readUntil("an answer", func(f any) bool { return isStatus(f, 15, "200") })
}

// beginLong begins a stream with a header that needs several frames.
func (c *rawClient) beginLong(id uint32, name, value string) {
	c.t.Helper()
	c.block.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"},
		{Name: ":path", Value: "/"}, {Name: name, Value: value, Sensitive: true},
	} {
		if err := c.enc.WriteField(f); err != nil {
			c.t.Fatal(err)
		}
	}
	const maximum = 16 << 10
	first := c.block.Next(maximum)
	err := c.WriteHeaders(
		http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: true, EndHeaders: c.block.Len() == 0},
	)
	for err == nil && c.block.Len() > 0 {
		next := c.block.Next(maximum)
		err = c.WriteContinuation(id, c.block.Len() == 0, next)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func isStatus(f any, id uint32, code string) bool {
	headers, ok := f.(*http2.MetaHeadersFrame)
	return ok && headers.StreamID == id && headers.PseudoValue("status") == code
}

func TestWindowUpdatesResumeResponses(t *testing.T) {
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, 300000)) // the client counts the bytes
	})
	c := dialRaw(t, address, config, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	c.begin(1, http.MethodGet, true)
	got := 0
	c.readUntil("all of it", func(f any) bool {
		data, ok := f.(*http2.DataFrame)
		if !ok {
			return false
		}
		got += len(data.Data())
		if !data.StreamEnded() {
			for _, id := range []uint32{0, 1} {
				if err := c.WriteWindowUpdate(id, uint32(len(data.Data()))+1000); err != nil {
					t.Fatal(err)
				}
			}
		}
		return data.StreamEnded()
	})
	if got != 300000 {
		t.Errorf("%d bytes came", got)
	}
}

func TestBodyLengthMustMatchContentLength(t *testing.T) {
	start, read := make(chan struct{}, 4), make(chan error, 4)
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		start <- struct{}{}
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})
	for _, body := range []string{"123", "12345"} {
		for _, slow := range []bool{true, false} {
			c := dialRaw(t, address, config)
			c.begin(1, http.MethodPost, false, "content-length", "4")
			if slow { // the handler begins without the body
				<-start
			}
			if err := c.WriteData(1, true, []byte(body)); err != nil {
				t.Fatal(err)
			}
			c.readUntil("an error", func(f any) bool { return isReset(f, 1, http2.ErrCodeProtocol) })
			if !slow && len(start) == 0 {
				continue // it was refused before its handler began
			}
			if !slow {
				<-start
			}
			if err := <-read; err == nil {
				t.Errorf("a body of %q passed as one of 4 bytes", body)
			}
		}
	}
}

func TestHandlersWaitBrieflyForBodies(t *testing.T) {
	start, read := make(chan struct{}, 1), make(chan string, 1)
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		start <- struct{}{}
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		read <- string(data)
	})
	c := dialRaw(t, address, config)
	for i, slow := range []bool{false, true, false, true} {
		id := uint32(2*i + 1)
		c.begin(id, http.MethodPost, false, "content-length", "4")
		if slow {
			<-start
		}
		for _, part := range []string{"12", "34"} {
			if err := c.WriteData(id, part == "34", []byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if !slow {
			<-start
		}
		if got := <-read; got != "1234" {
			t.Errorf("the handler read %q", got)
		}
	}
}

func TestTryWriteDoesNotBlock(t *testing.T) {
	streams := make(chan *h2.Stream, 1)
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		streams <- h2.StreamOf(w)
		<-r.Context().Done()
	})
	c := dialRaw(t, address, config, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	c.begin(1, http.MethodGet, true)
	s, room := <-streams, make(chan struct{})
	if n, err := s.TryWrite(make([]byte, 100), func() { close(room) }); n != 10 || err != nil {
		t.Fatalf("offer: %d, %v", n, err)
	}
	if err := c.WriteWindowUpdate(1, 5); err != nil {
		t.Fatal(err)
	}
	<-room
	if n, err := s.TryWrite(make([]byte, 100), func() {}); n != 5 || err != nil {
		t.Fatalf("offer: %d, %v", n, err)
	}
	if err := c.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.TryWrite([]byte("x"), func() {}); err != nil {
			return
		}
	}
}
