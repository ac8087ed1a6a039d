package h2_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"clusterctl/daemons/client/h2"
)

// server is an HTTP/2 server with a transport for it.
type server struct {
	*httptest.Server
	*h2.Transport
	dials atomic.Int32
}

func serve(t testing.TB, settings *http.HTTP2Config, h http.HandlerFunc) *server {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(h)}
	s.EnableHTTP2, s.Server.Config.HTTP2 = true, settings
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Server.Close() })
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.NextProtos = "example.com", []string{"h2"}
	s.Transport = &h2.Transport{Dial: func(ctx context.Context) (net.Conn, error) {
		s.dials.Add(1)
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}}
	t.Cleanup(s.Transport.CloseIdleConnections)
	return s
}

func (s *server) do(
	ctx context.Context,
	method, path string,
	body io.Reader,
	headers ...string,
) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://example.com"+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return (&http.Client{Transport: s.Transport}).Do(r)
}

// echo answers with the content of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.Header().Set("Asked", fmt.Sprint(r.Method, " ", r.Host, " ", r.RequestURI, " ", r.ContentLength, " ", err))
	w.Header().Set("Had", fmt.Sprint(r.Header))
	w.Header().Add("Twice", "a")
	w.Header().Add("Twice", "b")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(body)
}

// random returns text that cannot be compressed.
func random(t testing.TB, n int) []byte {
	t.Helper()
	text := make([]byte, n)
	if _, err := rand.Read(text); err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRequestsAndResponsesMatchTheStandardLibrary sends the same requests with both transports.
func TestRequestsAndResponsesMatchTheStandardLibrary(t *testing.T) {
	s := serve(t, nil, echo)
	large := random(t, 5<<20)
	for name, c := range map[string]struct {
		method, path string
		body         func() io.Reader
		headers      []string
	}{
		"get":                {"GET", "/a?b=c&d=%20e", nil, nil},
		"head":               {"HEAD", "/", nil, nil},
		"delete":             {"DELETE", "/a", nil, nil},
		"delete with a body": {"DELETE", "/a", func() io.Reader { return strings.NewReader("options") }, nil},
		"post nothing":       {"POST", "/", nil, nil},
		"post an empty text": {"POST", "/", func() io.Reader { return strings.NewReader("") }, nil},
		"post a text": {"POST", "/", func() io.Reader { return strings.NewReader("text") },
			[]string{"Content-Type", "text/plain"}},
		"post some":             {"PUT", "/", func() io.Reader { return bytes.NewReader(large[:60<<10]) }, nil},
		"post much":             {"PATCH", "/", func() io.Reader { return bytes.NewReader(large) }, nil},
		"post without a length": {"POST", "/", func() io.Reader { return unknownLength{bytes.NewReader(large)} }, nil},
		"headers": {"GET", "/", nil,
			[]string{"Authorization", "Bearer " + strings.Repeat("t", 30000), "Accept", "a", "Accept", "b",
				"User-Agent", "me", "x-lower", "é"}},
		"a long path": {"GET", "/" + strings.Repeat("p", 20000), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(transport http.RoundTripper) (string, []byte) {
				var body io.Reader
				if c.body != nil {
					body = c.body()
				}
				r, err := http.NewRequestWithContext(t.Context(), c.method, "https://example.com"+c.path, body)
				if err != nil {
					t.Fatal(err)
				}
				r.URL.Host = s.Listener.Addr().String()
				r.Host = "example.com"
				for i := 0; i < len(c.headers); i += 2 {
					r.Header.Add(c.headers[i], c.headers[i+1])
				}
				answer, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				text, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatal(err)
				}
				answer.Header.Del("Date")
				return fmt.Sprint(answer.Status, answer.StatusCode, answer.Proto, answer.ProtoMajor, answer.ProtoMinor,
					answer.ContentLength, answer.Header, answer.Request != nil), text
			}
			standard := s.Client().Transport.(*http.Transport).Clone()
			standard.DisableCompression, standard.ForceAttemptHTTP2 = true, true
			defer standard.CloseIdleConnections()
			for range 2 {
				got, text := ask(s.Transport)
				want, wantText := ask(standard)
				if got != want || !bytes.Equal(text, wantText) {
					t.Errorf("it is answered\n%s and %d bytes, over net/http\n%s and %d", got, len(text), want,
						len(wantText))
				}
			}
		})
	}
	if n := s.dials.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

func TestConcurrentRequestsGetTheirOwnResponses(t *testing.T) {
	s := serve(t, &http.HTTP2Config{MaxConcurrentStreams: 20}, echo)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for j := range 8 {
				want := bytes.Repeat([]byte(fmt.Sprint(i, " ", j, " ")), 1+j*j*50)
				r, err := s.do(t.Context(), "POST", "/", bytes.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes became %d, %v", len(want), len(got), err)
				}
			}
		})
	}
	all.Wait()
	if n := s.dials.Load(); n < 2 || n > 20 {
		t.Errorf("%d connections were made for a hundred requests at once, of which one takes twenty", n)
	}
}

// TestCancellationEndsTheRequestAtTheServer covers cancellation before and after the answer's start.
func TestCancellationEndsTheRequestAtTheServer(t *testing.T) {
	ended, started := make(chan struct{}), make(chan struct{}, 1)
	s := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			_, _ = w.Write([]byte("begun"))
			w.(http.Flusher).Flush()
		}
		started <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := s.do(ctx, "POST", "/silent", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("before the answer: %v", err)
	}
	<-ended

	ctx, cancel = context.WithCancel(t.Context())
	r, err := s.do(ctx, "GET", "/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(io.LimitReader(r.Body, 5)); err != nil || string(text) != "begun" {
		t.Fatal(string(text), err)
	}
	<-started
	cancel()
	if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("within the answer: %v", err)
	}
	<-ended

	if r, err = s.do(t.Context(), "GET", "/watch", nil); err != nil {
		t.Fatal(err)
	}
	<-started
	reading := make(chan error)
	go func() {
		_, err := io.ReadAll(r.Body)
		reading <- err
	}()
	r.Body.Close()
	if err := <-reading; err == nil {
		t.Error("a body that was closed was read to its end")
	}
	<-ended
	if n := s.dials.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	s := serve(t, nil, echo)
	for _, spoil := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("A", "b\r\nc: d") },
		func(r *http.Request) { r.Header["a b"] = []string{"c"} },
		func(r *http.Request) { r.Host = "a\nb" }, func(r *http.Request) { r.URL.Opaque = "no path" },
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		spoil(r)
		if answer, err := s.RoundTrip(r); err == nil {
			answer.Body.Close()
			t.Errorf("%v was sent", r)
		}
	}
	answer, err := s.do(t.Context(), "GET", "/", nil)
	if err != nil {
		t.Fatal("after what was refused: ", err)
	}
	answer.Body.Close()
}

func BenchmarkRequest(b *testing.B) {
	s := serve(b, nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status"}`))
	})
	standard := s.Client().Transport.(*http.Transport).Clone()
	standard.ForceAttemptHTTP2 = true
	for name, transport := range map[string]http.RoundTripper{"own": s.Transport, "standard": standard} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					r, err := http.NewRequestWithContext(b.Context(), "DELETE", fmt.Sprintf(
						"https://%s/api/v1/namespaces/default/pods/web-%d", s.Listener.Addr(), i),
						strings.NewReader("options"))
					if err != nil {
						b.Error(err)
						return
					}
					r.Header.Set("Accept", "application/json")
					r.Header.Set("Authorization", "Bearer of a token")
					answer, err := transport.RoundTrip(r)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
			})
		})
	}
	standard.CloseIdleConnections()
}
