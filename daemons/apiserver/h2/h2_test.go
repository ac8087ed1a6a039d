package h2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver/h2"
	"clusterctl/daemons/run"
)

// serve serves h until the test ends. It returns the address and the client's TLS configuration.
func serve(
	t testing.TB,
	own *h2.Server,
	h http.HandlerFunc,
	set ...func(*http.Server),
) (address string, config *tls.Config, server *http.Server) {
	t.Helper()
	return serveOn(t, func(ln net.Listener) net.Listener { return ln }, own, h, set...)
}

// serveOn is like serve, with a wrapper for the listener.
func serveOn(
	t testing.TB,
	listen func(net.Listener) net.Listener,
	own *h2.Server,
	h http.HandlerFunc,
	set ...func(*http.Server),
) (
	address string, config *tls.Config, server *http.Server,
) {
	t.Helper()
	ca, err := certs.NewCA("localhost", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(ca.Cert, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	server = run.NewServer(h, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
		slog.New(slog.DiscardHandler))
	server.MaxHeaderBytes = 16 << 10
	for _, f := range set {
		f(server)
	}
	own.Log = slog.New(slog.DiscardHandler)
	own.Attach(server)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listen(own.Listen(ln)), "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		own.Close()
	})
	// The certificate is the CA's own and names no host, which this test does not verify.
	return ln.Addr().
			String(),
		&tls.Config{
			InsecureSkipVerify: true,
			RootCAs:            roots,
			NextProtos:         []string{"h2"},
			MinVersion:         tls.VersionTLS13,
		}, server //nolint:gosec
}

func newClient(t *testing.T, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestBodiesOfAnySizeAreTransferred(t *testing.T) {
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.TLS == nil || r.Host == "" {
			t.Errorf("a request of version %d to %q", r.ProtoMajor, r.Host)
		}
		_, _ = io.Copy(w, r.Body) // the client compares
	})
	c := newClient(t, config)
	var all sync.WaitGroup
	for i, size := range []int{0, 1, 16 << 10, 16<<10 + 1, 100 << 10, 3 << 20, 5 << 20, 7, 700, 70000} {
		all.Go(func() {
			sent := bytes.Repeat([]byte{byte(i), byte(i * 7), 3}, size/3+1)[:size]
			answer, err := c.Post("https://"+address, "application/octet-stream", bytes.NewReader(sent))
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			got, err := io.ReadAll(answer.Body)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("sent %d bytes, got %d back: %v", size, len(got), err)
			}
		})
	}
	all.Wait()
}

func TestResponsesEqualHandlerOutput(t *testing.T) {
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		writeResponse(t, w, r)
	})
	c := newClient(t, config)
	get := func(method, path string) (*http.Response, string, error) {
		t.Helper()
		r, err := http.NewRequest(method, "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(r)
		if err != nil {
			return nil, "", err
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		return answer, string(data), err
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		answer, text, err := get(method, "/length")
		if err != nil || answer.ContentLength != 5 || len(answer.Header.Get("X-Odd")) != 500 ||
			answer.Header.Get("Date") == "" {
			t.Errorf("%s: %v, %v", method, answer, err)
		}
		if want := map[string]string{http.MethodGet: "12345"}[method]; text != want {
			t.Errorf("%s: %q", method, text)
		}
	}
	if answer, _, err := get(http.MethodGet, "/none"); err != nil || answer.StatusCode != http.StatusNoContent {
		t.Errorf("204: %v, %v", answer, err)
	}
	if _, text, err := get(http.MethodGet, "/short"); err == nil {
		t.Errorf("a response shorter than announced is accepted as %q", text)
	}
	if _, _, err := get(http.MethodGet, "/panic"); err == nil {
		t.Error("a handler that panics has answered")
	}
	if answer, _, err := get(http.MethodGet, "/sniffed"); err != nil ||
		!strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
		t.Errorf("an answer without a type: %v, %v", answer, err)
	}

	r, err := http.NewRequest(http.MethodPost, "https://"+address+"/trailers",
		io.MultiReader(strings.NewReader("body")))
	if err != nil {
		t.Fatal(err)
	}
	r.Trailer = http.Header{"Sent": {"along"}}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err != nil || answer.Trailer.Get("After") != "along" ||
		answer.Trailer.Get("Unannounced") != "too" {
		t.Errorf("trailers: %v, %v", answer.Trailer, err)
	}

	var link string
	traced := httptrace.WithClientTrace(
		context.Background(),
		&httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			link = header.Get("Link")
			return nil
		}},
	)
	if r, err = http.NewRequestWithContext(traced, http.MethodGet, "https://"+address+"/hints", nil); err != nil {
		t.Fatal(err)
	}
	if answer, err = c.Do(r); err != nil || answer.StatusCode != http.StatusTeapot || link != "</a>" {
		t.Errorf("early hints: %v, %q, %v", answer, link, err)
	}
	_ = answer.Body.Close() // it has no body
}

// writeResponse responds to each path in a way of its own.
func writeResponse(t *testing.T, w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/length":
		w.Header().Set("Content-Length", "5")
		w.Header().Set("X-Odd", strings.Repeat("long ", 100))
		_, _ = w.Write([]byte("12345")) // the client checks it
		if _, err := w.Write([]byte("6")); !errors.Is(err, http.ErrContentLength) {
			t.Errorf("writing more than was announced: %v", err)
		}
	case "/none":
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("writing to 204: %v", err)
		}
	case "/short":
		w.Header().Set("Content-Length", "10")
		_, _ = w.Write([]byte("12345")) // the client checks it
	case "/trailers":
		w.Header().Set("Trailer", "After")
		_, _ = io.Copy(io.Discard, r.Body) // the trailers follow the body
		_, _ = w.Write([]byte("x"))        // the client checks it
		w.Header().Set("After", r.Trailer.Get("Sent"))
		w.Header().Set(http.TrailerPrefix+"Unannounced", "too")
	case "/hints":
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
	case "/sniffed":
		_, _ = io.WriteString(w, "<html>") // the client checks it
	case "/panic":
		panic("on purpose")
	}
}

func TestExpectContinueIsAnswered(t *testing.T) {
	read := make(chan struct{})
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		<-read
		_, _ = io.Copy(w, r.Body) // the client compares
	})
	transport := newClient(t, config).Transport.(*http.Transport)
	transport.ExpectContinueTimeout = time.Hour
	answered := false
	ctx := httptrace.WithClientTrace(context.Background(),
		&httptrace.ClientTrace{Got100Continue: func() { answered = true }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	close(read)
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "body" || !answered {
		t.Errorf("answered %q, 100 Continue: %v, %v", text, answered, err)
	}
}

func TestClientDisconnectCancelsTheHandler(t *testing.T) {
	ended := make(chan error, 1)
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the client waits for it
		<-r.Context().Done()
		_, err := w.Write([]byte("x"))
		ended <- err
	})
	c := newClient(t, config)
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	cancel()
	if err := <-ended; err == nil {
		t.Error("writing without a client succeeds")
	}
}

func TestTimedOutResponsesAreReset(t *testing.T) {
	failed := make(chan error, 1)
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Error(err)
		}
		_, err := w.Write(make([]byte, 64<<20))
		failed <- err
	})
	answer, err := newClient(t, config).Get("https://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var timeout net.Error
	if err := <-failed; !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("writing to a client that takes nothing: %v", err)
	}
	if n, err := io.Copy(io.Discard, answer.Body); err == nil {
		t.Errorf("%d bytes passed as everything", n)
	}
}

func TestShutdownFinishesOpenRequests(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	address, config, server := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-release
		_, _ = io.WriteString(w, "whole") // the client checks it
	})
	c := newClient(t, config)
	got := make(chan string, 1)
	go func() {
		answer, err := c.Get("https://" + address)
		if err != nil {
			got <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body) // compared below
		got <- string(text)
	}()
	<-started
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	for {
		answer, err := c.Get("https://" + address)
		if err != nil {
			break // neither this connection nor a new one works
		}
		_ = answer.Body.Close() // no response was expected
		t.Error("a request was begun after the goodbye")
	}
	close(release)
	if text := <-got; text != "whole" {
		t.Errorf("the request that was under way: %s", text)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	address, config, _ := serve(t, &h2.Server{IdleTimeout: 20 * time.Millisecond},
		func(http.ResponseWriter, *http.Request) {})
	c := dialRaw(t, address, config)
	c.readUntil("goodbye", func(f any) bool { return c.isGoAway(f, 0) })
}

func TestStreamsShareTLSRecords(t *testing.T) {
	var mu sync.Mutex
	var streams []*h2.Stream
	var ready sync.WaitGroup
	ready.Add(10)
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the client waits for it
		mu.Lock()
		streams = append(streams, h2.StreamOf(w))
		mu.Unlock()
		ready.Done()
		<-r.Context().Done()
	})
	c := newClient(t, config)
	var bodies []io.Reader
	for range 10 {
		answer, err := c.Get("https://" + address)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		bodies = append(bodies, answer.Body)
	}
	ready.Wait()
	mu.Lock()
	defer mu.Unlock()
	made := 0
	for _, s := range streams {
		if s.Conn().SharedValue(func() any { made++; return "shared" }) != "shared" {
			t.Error("nothing is shared")
		}
		if n, err := s.TryWrite([]byte("event"), func() { t.Error("there was room") }); n != 5 || err != nil {
			t.Errorf("offer: %d, %v", n, err)
		}
	}
	if err := streams[0].Conn().Flush(); err != nil || made != 1 {
		t.Errorf("flush: %v; made %d times", err, made)
	}
	for _, body := range bodies {
		event := make([]byte, 5)
		if _, err := io.ReadFull(body, event); err != nil || string(event) != "event" {
			t.Errorf("%q, %v", event, err)
		}
	}
}
