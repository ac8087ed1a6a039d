package h2_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// unknownLength hides the type of a reader, so that its length is unknown.
type unknownLength struct{ io.Reader }

func TestResponsesWaitForSlowReaders(t *testing.T) {
	text := random(t, 16<<20)
	var written atomic.Int64
	s := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(text); i += 64 << 10 {
			n, err := w.Write(text[i : i+64<<10])
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})
	r, err := s.do(t.Context(), "GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	quick, err := s.do(t.Context(), "HEAD", "/", nil) // answered while the other request is running
	if err != nil {
		t.Fatal(err)
	}
	quick.Body.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if want := sha256.Sum256(text); err != nil || n != int64(len(text)) || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("%d bytes of %d have come, %v", n, len(text), err)
	}
}

// TestBufferedDataIsLimitedByTheWindow checks that no more of a long answer is buffered than the window.
func TestBufferedDataIsLimitedByTheWindow(t *testing.T) {
	const pieces, size = 1024, 64 << 10
	s := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, size)
		for range pieces {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	r, err := s.do(t.Context(), "GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range pieces {
		if _, err := io.ReadFull(r.Body, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if i%128 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			if held := int64(now.HeapAlloc) - int64(before.HeapAlloc); held > 24<<20 {
				t.Fatalf("%d MiB are held after %d MiB of the answer", held>>20, i*size>>20)
			}
		}
	}
}

func TestServersCanStopTheRequestBody(t *testing.T) {
	s := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	})
	closed := make(chan struct{})
	r, err := s.do(t.Context(), "POST", "/", &endlessBody{closed: closed})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || r.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "too large\n" {
		t.Error(r.Status, string(text), err)
	}
	<-closed
}

// endlessBody is an endless body.
type endlessBody struct{ closed chan struct{} }

func (e *endlessBody) Read(p []byte) (int, error) { return len(p), nil }

func (e *endlessBody) Close() error { close(e.closed); return nil }

func TestBodiesWithAWrongLengthAreNotSent(t *testing.T) {
	s := serve(t, nil, echo)
	for name, body := range map[string]io.ReadCloser{
		"shorter": io.NopCloser(strings.NewReader("abc")), "longer": io.NopCloser(strings.NewReader("abcdef")),
		"broken": io.NopCloser(io.MultiReader(strings.NewReader("a"), brokenBody{})),
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Body, r.ContentLength = body, 5
		if answer, err := s.RoundTrip(r); err == nil {
			answer.Body.Close()
			t.Errorf("a %s body was sent", name)
		}
	}
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestTruncatedResponsesAreErrors(t *testing.T) {
	s := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("begun"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r, err := s.do(t.Context(), "GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err != io.ErrUnexpectedEOF { //nolint:errorlint // watchers compare it
		t.Errorf("%q, %v", text, err)
	}
}
