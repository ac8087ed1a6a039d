package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// floodClient is an HTTP/2 client that sends arbitrary frames.
type floodClient struct {
	net.Conn
	*http2.Framer
	closed chan struct{} // closed when the server ends the connection; only for a client that reads
}

// floodClient connects to the plaintext port. If reads is not set, the client never reads.
func (p *testProxy) floodClient(t *testing.T, reads bool) *floodClient {
	t.Helper()
	nc, err := net.Dial("tcp", p.plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if !reads { // so that few responses fill the kernel's buffers
		if err := nc.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
	}
	r := &floodClient{nc, http2.NewFramer(nc, nc), make(chan struct{})}
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if reads {
		go func() {
			defer close(r.closed)
			_, _ = io.Copy(io.Discard, nc)
		}()
	}
	return r
}

// requestHead returns the header block of a request with additional fields.
func requestHead(method, path string, more ...string) []byte {
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	fields := append([]string{":method", method, ":scheme", "http", ":authority", "a.example", ":path", path}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return []byte(b.String())
}

// heapInUse returns the heap memory in use, in bytes.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// checkOtherClient checks that another client is served.
func (p *testProxy) checkOtherClient(t *testing.T) {
	t.Helper()
	res, err := p.newClient().Get("http://a.example/quick")
	if err != nil {
		t.Fatalf("another client: %v", err)
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("another client gets %d", res.StatusCode)
	}
}

func eventually(t *testing.T, what string, matches func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !matches(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Streams that are opened and reset at once cause no more concurrent work than the stream limit allows. A client beyond
// that loses its connection.
// Proves S32.
func TestRapidResetsAreBounded(t *testing.T) {
	const streams = 16
	p := startProxy(t, func(c *Config) { c.MaxStreams = streams })
	var busy, maximum atomic.Int64
	at := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			return
		}
		n := busy.Add(1)
		defer busy.Add(-1)
		for m := maximum.Load(); n > m && !maximum.CompareAndSwap(m, n); m = maximum.Load() {
		}
		<-r.Context().Done()
	})
	p.addRoute("a.example", "/", []string{at})
	before := heapInUse()
	head := requestHead("GET", "/slow")
	var sent int
	for range 4 {
		r := p.floodClient(t, true)
		for id := uint32(1); id < 60000; id += 2 {
			if r.WriteHeaders(
				http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndStream: true, EndHeaders: true},
			) != nil ||
				r.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				break
			}
			sent++
		}
		p.checkOtherClient(t)
	}
	if grown := heapInUse() - before; grown > 16<<20 {
		t.Errorf("after %d resets %d MiB more are in use", sent, grown>>20)
	}
	// A backend learns with a delay that its request was canceled.
	if n := maximum.Load(); n > 8*streams {
		t.Errorf("the backend had %d requests at one time", n)
	}
	eventually(t, "requests of streams that were reset go on", func() bool { return busy.Load() == 0 })
}

// A head with endless CONTINUATION frames uses no more memory than a head may have, and ends the connection.
// Proves S32.
func TestEndlessHeadsEndTheConnection(t *testing.T) {
	p := startProxy(t, nil)
	at := startBackend(t, func(http.ResponseWriter, *http.Request) {})
	p.addRoute("a.example", "/", []string{at})
	before := heapInUse()
	r := p.floodClient(t, true)
	if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHead("GET", "/"),
		EndStream: true}); err != nil {
		t.Fatal(err)
	}
	more := requestHead("GET", "/", "x-more", strings.Repeat("a", 12<<10))[len(requestHead("GET", "/")):]
	sent := 0
	for range 10000 {
		if r.WriteContinuation(1, false, more) != nil {
			break
		}
		sent += len(more)
	}
	select {
	case <-r.closed:
	case <-time.After(20 * time.Second):
		t.Errorf("the connection goes on after %d KiB of a head", sent>>10)
	}
	if grown := heapInUse() - before; grown > 8<<20 {
		t.Errorf("%d MiB more are in use", grown>>20)
	}
	p.checkOtherClient(t)
}

// A client that causes protocol responses and does not read them is disconnected before they use much memory. Responses
// to SETTINGS are combined and use none.
// Proves S32.
func TestFloodsOfControlFramesEndTheConnection(t *testing.T) {
	p := startProxy(t, func(c *Config) { c.Idle, c.WriteTime = 2*time.Second, time.Second })
	at := startBackend(t, func(http.ResponseWriter, *http.Request) {})
	p.addRoute("a.example", "/", []string{at})
	for name, one := range map[string]func(*floodClient) error{
		"SETTINGS": func(r *floodClient) error {
			return r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
		},
		"PING": func(r *floodClient) error { return r.WritePing(false, [8]byte{1}) },
		"resets of the server's": func(r *floodClient) error { // for requests without a path
			return r.WriteHeaders(http2.HeadersFrameParam{StreamID: nextStream(r), BlockFragment: []byte{0x82},
				EndHeaders: true, EndStream: true})
		},
	} {
		before := heapInUse()
		r := p.floodClient(t, false)
		_ = r.SetWriteDeadline(time.Now().Add(5 * time.Minute))
		var err error
		sent := 0
		for ; err == nil; sent++ {
			err = one(r)
		}
		if grown := heapInUse() - before; grown > 16<<20 {
			t.Errorf("%s: %d MiB more are in use after %d frames", name, grown>>20, sent)
		}
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: the client is not cut off after %d frames (%v)", name, sent, err)
		}
		p.checkOtherClient(t)
	}
}

var lastStreams = map[*floodClient]uint32{}

func nextStream(r *floodClient) uint32 {
	lastStreams[r] += 2
	return lastStreams[r] - 1
}

// A client that starts a connection, a head or a request and does not continue is disconnected after the time limit.
// Proves S32.
func TestSlowHeadsOfHTTP2EndTheConnection(t *testing.T) {
	p := startProxy(t, func(c *Config) { c.Idle, c.HeadTime = 300*time.Millisecond, 300*time.Millisecond })
	at := startBackend(t, func(http.ResponseWriter, *http.Request) {})
	p.addRoute("a.example", "/", []string{at})
	for name, begin := range map[string]func(*floodClient) error{
		"nothing after the preface": func(*floodClient) error { return nil },
		"half of a head": func(r *floodClient) error {
			return r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHead("GET", "/"),
				EndStream: true})
		},
		"half of a frame": func(r *floodClient) error { _, err := r.Conn.Write([]byte{0, 0, 100, 1, 4}); return err },
	} {
		r := p.floodClient(t, true)
		if err := begin(r); err != nil {
			t.Fatal(err)
		}
		select {
		case <-r.closed:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the connection stays", name)
		}
	}
}

// An HTTP/2 client that does not read a response occupies its backend only for a limited time. A stream that waits for
// its backend has no such limit.
// Proves S32.
func TestStreamsThatAreNotReadAreReset(t *testing.T) {
	p := startProxy(t, func(c *Config) { c.WriteTime = 300 * time.Millisecond })
	done := make(chan struct{}, 1)
	at := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			for chunk := make([]byte, 64<<10); r.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					break
				}
			}
			done <- struct{}{}
		case "/slow":
			for range 3 {
				_, _ = io.WriteString(w, "a")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(500 * time.Millisecond) // longer than the write time limit
			}
		}
	})
	p.addRoute("a.example", "/", []string{at})
	r := p.floodClient(t, true)
	if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHead("GET", "/long"),
		EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("the backend still sends to a client that does not read")
	}
	res, err := p.newClient("h2c").Get("http://a.example/slow")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); string(b) != "aaa" {
		t.Errorf("of a slow backend came %q, %v", b, err)
	}
}
