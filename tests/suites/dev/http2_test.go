package dev

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver/h2"
	"clusterctl/daemons/run"
)

// HTTP/2 conforms to RFC 9113 and RFC 7541, according to the tests of h2spec, including the strict ones.
// Proves S07.
func TestHTTP2FollowsTheSpecification(t *testing.T) {
	// Some tests send an error after an incomplete request. A handler that does not wait for the end of the request may
	// answer first, and then what follows is correctly ignored. So these tests run against a handler that waits, and
	// not against the API server.
	t.Run("by the API server", func(t *testing.T) {
		server, err := url.Parse(restConfig.Host)
		if err != nil {
			t.Fatal(err)
		}
		h2spec(t, server.Host, "/version", "generic", "hpack", "http2/3", "http2/4", "http2/5", "http2/6.1",
			"http2/6.2", "http2/6.3", "http2/6.4", "http2/6.5", "http2/6.7", "http2/6.8", "http2/6.9/1", "http2/6.9/2",
			"http2/6.9/3", "http2/6.9.1/1", "http2/6.9.1/2", "http2/6.9.2", "http2/6.10", "http2/7", "http2/8.1.2.2",
			"http2/8.1.2.3", "http2/8.2")
	})
	t.Run("before a handler that waits for the end of the request", func(t *testing.T) {
		h2spec(t, serveBuffered(t), "/")
	})
}

// h2spec runs the named tests of h2spec, or all without names.
func h2spec(t *testing.T, address, path string, tests ...string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--tls",
		"--insecure",
		"--strict",
		"--host",
		host,
		"--port",
		port,
		"--path",
		path,
		"--timeout",
		"10",
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(programDir, "h2spec"), append(args, tests...)...).
		CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// serveBuffered answers each request after it has received all of it, as the API server does for requests with a body.
func serveBuffered(t *testing.T) (address string) {
	t.Helper()
	ca, err := certs.NewCA("localhost", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(ca.Cert, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	server := run.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = io.WriteString(w, "all of it has come\n")
		}
	}), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, log)
	own := h2.Server{Log: log}
	own.Attach(server)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(own.Listen(ln), "", "") // returns when the server is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
		own.Close()
	})
	return ln.Addr().String()
}
