package h2_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"clusterctl/daemons/client/h2"
)

// sendTo sends a request to a server that sends data after it has received the request, and then closes the
// connection. The request must end, too.
func sendTo(t *testing.T, body io.Reader, data []byte) (status int, text string, err error) {
	t.Helper()
	tr := &h2.Transport{
		Silence: time.Minute,
		Grace:   time.Minute,
		Idle:    time.Minute,
		Dial: func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				if _, err := io.ReadFull(server, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				for requested, in := false, http2.NewFramer(io.Discard, server); !requested; {
					f, err := in.ReadFrame()
					if err != nil {
						return
					}
					requested = f.Header().Type == http2.FrameHeaders
				}
				go func() { _, _ = io.Copy(io.Discard, server) }()
				_, _ = server.Write(data)
			}()
			return client, nil
		},
	}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://example.com/", body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := tr.RoundTrip(r)
	if ctx.Err() != nil {
		t.Fatal("a request did not end with its connection")
	}
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if ctx.Err() != nil {
		t.Fatal("an answer did not end with its connection")
	}
	return answer.StatusCode, string(read), err
}

// frames holds the frames that a server sends.
type frames struct {
	*http2.Framer
	text bytes.Buffer
}

func newFrames() *frames {
	f := &frames{}
	f.Framer = http2.NewFramer(&f.text, nil)
	f.AllowIllegalWrites = true
	return f
}

func block(fields ...string) []byte {
	var text bytes.Buffer
	e := hpack.NewEncoder(&text)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return text.Bytes()
}

//style:long a table of violations, with the frames of each
func TestProtocolViolationsAreErrors(t *testing.T) {
	headers := func(f *frames, ended bool, fields ...string) {
		_ = f.WriteHeaders(
			http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(fields...), EndStream: ended, EndHeaders: true},
		)
	}
	for name, c := range map[string]struct {
		say    func(*frames)
		status int // 0 means that the request fails
		text   string
		broken bool // the body is incomplete
	}{
		"nothing": {say: func(f *frames) {}},
		"an answer": {say: func(f *frames) {
			headers(f, false, ":status", "200")
			_ = f.WriteData(1,
				true, []byte("ok"))
		}, status: 200, text: "ok"},
		"an answer after a notice": {say: func(f *frames) {
			headers(f, false, ":status", "103")
			headers(f, true,
				":status", "204")
		}, status: 204},
		"an answer with trailers": {say: func(f *frames) {
			headers(f, false, ":status", "200")
			_ = f.WriteData(1, false, []byte("ok"))
			headers(f, true, "trailer", "t")
		}, status: 200, text: "ok"},
		"padding": {say: func(f *frames) {
			headers(f, false, ":status", "200")
			_ = f.WriteDataPadded(1, true, []byte("ok"), make([]byte, 200))
		}, status: 200, text: "ok"},
		"headers in pieces": {say: func(f *frames) {
			all := block(":status", "200", "content-length", "0")
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: all[:2], EndStream: true})
			_ = f.WriteContinuation(1, true, all[2:])
		}, status: 200},
		"a part": {say: func(f *frames) {
			headers(f, false, ":status", "200")
			_ = f.WriteData(1, false,
				[]byte("ok"))
		}, status: 200, text: "ok", broken: true},
		"too little": {say: func(f *frames) {
			headers(f, false, ":status", "200", "content-length", "5")
			_ = f.WriteData(1, true, []byte("ok"))
		}, status: 200, broken: true},
		"too much": {say: func(f *frames) {
			headers(f, false, ":status", "200", "content-length", "1")
			_ = f.WriteData(1, true, []byte("ok"))
		}, status: 200, broken: true},
		"a length of nonsense": {say: func(f *frames) {
			headers(f, false, ":status", "200", "content-length",
				"-1")
		}},
		"no status":               {say: func(f *frames) { headers(f, true, "content-length", "0") }},
		"no number":               {say: func(f *frames) { headers(f, true, ":status", "ok") }},
		"nothing but a notice":    {say: func(f *frames) { headers(f, true, ":status", "100") }},
		"another protocol":        {say: func(f *frames) { headers(f, false, ":status", "101") }},
		"a body before an answer": {say: func(f *frames) { _ = f.WriteData(1, true, []byte("ok")) }},
		"an answer to nobody": {say: func(f *frames) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 99, BlockFragment: block(":status", "200"),
				EndHeaders: true})
		}},
		"headers that are none": {say: func(f *frames) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
				BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}},
		"a push": {say: func(f *frames) {
			_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2,
				BlockFragment: block(":method", "GET"), EndHeaders: true})
		}},
		"a window that overflows": {say: func(f *frames) {
			_ = f.WriteWindowUpdate(0,
				1<<31-1)
			_ = f.WriteWindowUpdate(0, 1<<31-1)
		}},
		"a reset": {say: func(f *frames) { _ = f.WriteRSTStream(1, http2.ErrCodeInternal) }},
		"a reset within an answer": {say: func(f *frames) {
			headers(f, false, ":status", "200")
			_ = f.WriteRSTStream(1,
				http2.ErrCodeInternal)
		}, status: 200, broken: true},
		"no room ever": {say: func(f *frames) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }},
		"refusal ever": {say: func(f *frames) { _ = f.WriteRSTStream(1, http2.ErrCodeRefusedStream) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFrames()
			_ = f.WriteSettings()
			c.say(f)
			status, text, err := sendTo(t, nil, f.text.Bytes())
			switch {
			case c.status == 0 && err == nil:
				t.Errorf("it was answered with %d %q", status, text)
			case c.broken:
				if status != c.status || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("it was answered with %d %q, %v", status, text, err)
				}
			case c.status != 0 && (err != nil || status != c.status || text != c.text):
				t.Errorf("it was answered with %d %q, %v", status, text, err)
			}
		})
	}
}

// FuzzServer tests answers with arbitrary bytes.
func FuzzServer(f *testing.F) {
	seed := newFrames()
	_ = seed.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	_ = seed.WriteHeaders(
		http2.HeadersFrameParam{
			StreamID:      1,
			BlockFragment: block(":status", "200", "content-type", "text/plain"),
			EndHeaders:    true,
		},
	)
	_ = seed.WriteData(1, true, []byte("text"))
	_ = seed.WriteWindowUpdate(3, 5)
	_ = seed.WritePing(false, [8]byte{1})
	_ = seed.WriteGoAway(3, http2.ErrCodeNo, nil)
	f.Add(seed.text.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, _ = sendTo(t, nil, data)
		_, _, _ = sendTo(t, strings.NewReader("text"), data)
	})
}
