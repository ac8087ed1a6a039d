package h2_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"golang.org/x/net/http2"

	"clusterctl/daemons/apiserver/h2"
)

// A deferred response equals a handler's response, whatever its size. A handler answers the requests that ServeFast
// does not take.
func TestDeferredResponsesEqualHandlerResponses(t *testing.T) {
	bodies := map[string][]byte{
		"/none":  nil,
		"/small": []byte("small"),
		"/large": bytes.Repeat([]byte("large "), 100000),
	}
	later := make(chan func(), 1)
	own := &h2.Server{ServeFast: func(d *h2.Deferred, r *http.Request) bool {
		body, ok := bodies[r.URL.Path]
		switch {
		case r.Context().Err() == nil:
			t.Error("one could wait with the request's context")
		case r.URL.Path == "/panics":
			panic("so it says")
		case !ok:
			return false
		}
		later <- func() {
			d.Header().Set("Later", "yes")
			d.WriteHeader(http.StatusAccepted)
			buffer := bytes.Clone(body)
			half := len(body) / 2
			_, _ = d.Write(buffer[:half]) // the client checks it
			_, _ = d.Write(buffer[half:])
			clear(buffer) // Write must have copied it
			d.Send()
			d.Flush()
		}
		return true
	}}
	address, config, _ := serve(t, own, func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() != nil {
			t.Error("a handler's request has ended")
		}
		_, _ = io.WriteString(w, "by a handler") // the client checks it
	})
	c := newClient(t, config)
	get := func(path string) (int, string, []byte) {
		answer, err := c.Get("https://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		got, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, answer.Header.Get("Later"), got
	}
	for range 3 {
		for path, want := range bodies {
			done := make(chan struct{})
			go func() {
				(<-later)()
				close(done)
			}()
			if code, header, got := get(path); code != http.StatusAccepted || header != "yes" ||
				!bytes.Equal(got, want) {
				t.Errorf("%s: %d %q, %d bytes", path, code, header, len(got))
			}
			<-done
		}
		for _, path := range []string{"/else", "/panics"} {
			if code, _, got := get(path); code != http.StatusOK || string(got) != "by a handler" {
				t.Errorf("%s: %d %q", path, code, got)
			}
		}
	}
}

// A goroutine that answers many requests does not wait for a client that reads nothing, or has left.
// Proves S12.
func TestDeferredResponsesDoNotBlock(t *testing.T) {
	requested := make(chan *h2.Deferred, 1)
	own := &h2.Server{ServeFast: func(d *h2.Deferred, r *http.Request) bool {
		requested <- d
		return true
	}}
	address, config, _ := serve(t, own, func(http.ResponseWriter, *http.Request) { t.Error("a handler was called") })
	c := dialRaw(t, address, config, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	answer := func() {
		d := <-requested
		_, _ = d.Write(make([]byte, 100)) // the client counts the bytes
		d.Send()
		d.Flush()
	}
	c.begin(1, http.MethodGet, true)
	answer()
	got := 0
	c.readUntil("all of it", func(f any) bool {
		data, ok := f.(*http2.DataFrame)
		if !ok {
			return false
		}
		if got += len(data.Data()); !data.StreamEnded() {
			if err := c.WriteWindowUpdate(1, 60); err != nil {
				t.Fatal(err)
			}
		}
		return data.StreamEnded()
	})
	if got != 100 {
		t.Errorf("%d bytes came", got)
	}
	c.begin(3, http.MethodGet, true)
	if err := c.WriteRSTStream(3, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	if err := c.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	c.readUntil("an answer to the ping", func(f any) bool {
		ping, ok := f.(*http2.PingFrame)
		return ok && ping.IsAck()
	})
	answer() // the client has left
	c.begin(5, http.MethodGet, true)
	d := <-requested
	_, _ = d.Write([]byte("x")) // the client waits for it
	d.Send()
	d.Flush()
	c.readUntil("the next answer", func(f any) bool {
		data, ok := f.(*http2.DataFrame)
		return ok && data.StreamID == 5 && data.StreamEnded()
	})
}
