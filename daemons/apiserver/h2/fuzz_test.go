package h2_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"clusterctl/daemons/apiserver/h2"
)

// FuzzFrames sends arbitrary bytes after the connection preface.
func FuzzFrames(f *testing.F) {
	addFrameSeeds(f)
	// Half of the GET requests are answered later, in pairs.
	later := make(chan *h2.Deferred, 1)
	prompt := func(d *h2.Deferred, r *http.Request) bool {
		if len(r.URL.Path)%2 > 0 {
			return false
		}
		select {
		case other := <-later:
			for _, d := range []*h2.Deferred{d, other} {
				_, _ = d.Write([]byte(r.URL.Path)) // does not fail
				d.Send()
				d.Flush()
			}
			return true
		default:
		}
		select {
		case later <- d:
			return true
		default:
			return false
		}
	}
	address, config, _ := serve(
		f,
		&h2.Server{Log: slog.New(slog.DiscardHandler), ServeFast: prompt},
		func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprintln(w, n, err)
		},
	)
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := tls.Dial("tcp", address, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		framer := http2.NewFramer(conn, conn)
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(data); err != nil {
			return // refused in the middle
		}
		if err := framer.WritePing(false, [8]byte{7}); err != nil {
			return
		}
		// The server must answer or close the connection, and not hang.
		_ = conn.CloseWrite() // the server may have closed it
		if _, err := io.Copy(io.Discard, conn); err != nil {
			if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
				t.Error("the connection hangs")
			}
		}
	})
}

// addFrameSeeds adds frames of several requests.
func addFrameSeeds(f *testing.F) {
	as := func(method string, write func(*http2.Framer, []byte)) []byte {
		var block, out bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for _, h := range []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"},
			{Name: ":authority", Value: "x"}, {Name: ":path", Value: "/a"}} {
			if err := enc.WriteField(h); err != nil {
				f.Fatal(err)
			}
		}
		write(http2.NewFramer(&out, nil), block.Bytes())
		return out.Bytes()
	}
	frames := func(write func(*http2.Framer, []byte)) []byte { return as(http.MethodPost, write) }
	check := func(err error) {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Add(frames(func(w *http2.Framer, block []byte) {
		check(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true}))
		check(w.WriteData(1, true, []byte("body")))
		check(w.WriteRSTStream(1, http2.ErrCodeCancel))
	}))
	f.Add(frames(func(w *http2.Framer, block []byte) {
		check(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block[:2]}))
		check(w.WriteContinuation(3, true, block[2:]))
		check(w.WriteWindowUpdate(0, 1<<30))
		check(w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
		check(w.WriteGoAway(0, http2.ErrCodeNo, nil))
	}))
	f.Add(frames(func(w *http2.Framer, _ []byte) { check(w.WritePing(false, [8]byte{1})) }))
	f.Add(as(http.MethodGet, func(w *http2.Framer, block []byte) {
		check(
			w.WriteHeaders(
				http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true},
			),
		)
		check(w.WriteRSTStream(1, http2.ErrCodeCancel))
	}))
}
