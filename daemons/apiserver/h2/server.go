// Package h2 is a server for HTTP/2 (RFC 9113) over TLS, in place of net/http's. It is made for a server that answers
// many small requests and holds thousands of watches. A handler writes its response to the connection's buffer, which
// is sent in as few records and system calls as possible. The output of several streams at one time is sent together.
// Handlers run on reused goroutines, whose stacks have grown already. golang.org/x/net/http2 reads frames, and net/http
// does everything before HTTP/2. In a program that is built with the tag libraries, net/http also serves HTTP/2.
package h2

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"clusterctl/daemons/libraries"
)

// Server serves the HTTP/2 connections of an http.Server.
type Server struct {
	Log         *slog.Logger  // required
	IdleTimeout time.Duration // idle time of connections without streams; zero means two minutes
	// MaxHeaderBytes limits the headers of an identified client's request; zero means the limit of the http.Server.
	MaxHeaderBytes int
	// ServeFast, if set, gets each GET request before a handler does, on the goroutine that reads the connection. It
	// must not block, and the request's context has ended. It reports whether it answers the request.
	ServeFast func(*Deferred, *http.Request) bool

	workers workerPool

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	stopping bool
}

const (
	// maxStreams is how many streams a connection may have open, and how many handlers may run at once. If handlers
	// outlive streams that were reset, up to maxWaiting further streams wait for them.
	maxStreams = 250
	maxWaiting = 4 * maxStreams
	// windowSize is how many bytes of request bodies a connection, and each of its streams, may send ahead.
	windowSize = 1 << 20
	// prefaceTimeout is how long a client may take for its preface and settings.
	prefaceTimeout = 10 * time.Second
	// stuckTimeout is how long a client may accept no written data at all.
	stuckTimeout = 30 * time.Second
)

// Attach makes an http.Server pass its HTTP/2 connections to s. Call it before the server serves. It changes the
// server's TLS configuration.
func (s *Server) Attach(server *http.Server) {
	if s.IdleTimeout == 0 {
		s.IdleTimeout = 2 * time.Minute
	}
	s.conns = map[*Conn]struct{}{}
	if libraries.Selected {
		server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
		server.MaxHeaderBytes = cmp.Or(s.MaxHeaderBytes, server.MaxHeaderBytes)
		return
	}
	if server.TLSConfig == nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	server.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	// responses are complete when written, so small records gain nothing
	server.TLSConfig.DynamicRecordSizingDisabled = true
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": s.serve}
	server.RegisterOnShutdown(s.drain)
}

// serve handles a connection, on the connection's goroutine.
func (s *Server) serve(server *http.Server, nc *tls.Conn, h http.Handler) {
	ctx := context.Background()
	if based, ok := h.(interface{ BaseContext() context.Context }); ok {
		ctx = based.BaseContext()
	}
	limit := uint32(cmp.Or(s.MaxHeaderBytes, server.MaxHeaderBytes, http.DefaultMaxHeaderBytes))
	// each field counts 32 bytes more than its length (RFC 9113, 6.5.2); like net/http, allow for ten fields
	limit += 10 * 32
	c := newConn(s, nc, h, limit)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	stopping := s.stopping
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	if stopping {
		c.drain()
	}
	c.serve(ctx)
}

// drain lets clients finish their open streams, and begin no further ones.
func (s *Server) drain() {
	s.mu.Lock()
	s.stopping = true
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.drain()
	}
}

// Close ends the idle worker goroutines. Call it when no connection is served any more.
func (s *Server) Close() { s.workers.close() }

// Listen returns the listener that the attached server must serve on.
func (s *Server) Listen(ln net.Listener) net.Listener {
	if libraries.Selected {
		return ln
	}
	return gatheringListener{ln}
}
