// Package h2 is the server's side of HTTP/2 (RFC 9113) over TLS, in place of net/http's, for a
// server that answers many small requests and holds thousands of watches. A handler's answer
// goes from its own goroutine into the connection's buffer and from there, in as few records and system calls
// as there can be, onto the wire; what several streams of a connection have to say at one
// time goes out together. Handlers run on goroutines whose stacks have grown already. Frames
// are read by golang.org/x/net/http2, and what is before HTTP/2 is left to net/http.
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
)

// Server serves the HTTP/2 connections of an http.Server.
type Server struct {
	Log         *slog.Logger  // required
	IdleTimeout time.Duration // of connections without streams; zero means two minutes
	// MaxHeaderBytes is how large the headers of an identified client's request may be; zero means as large as those
	// that the http.Server takes.
	MaxHeaderBytes int
	// Prompt, when set, is offered each GET before a handler is, on the goroutine that reads the connection: it must
	// not wait, and the request's context has ended. It says whether it answers.
	Prompt func(*Deferred, *http.Request) bool

	workers workers

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	stopping bool
}

const (
	// maxStreams is how many streams a connection may have open. As many handlers run at once; where
	// they outlive streams that were reset, maxWaiting streams more wait for them.
	maxStreams = 250
	maxWaiting = 4 * maxStreams
	// window is how much of requests' bodies a connection, and each of its streams, may send ahead.
	window = 1 << 20
	// greeting is how long a client may take for its preface and settings.
	greeting = 10 * time.Second
	// stuck is how long a client may take nothing at all of what is written.
	stuck = 30 * time.Second
)

// Attach makes an http.Server hand its HTTP/2 connections over. It is called before the server
// serves, and changes its TLS configuration.
func (s *Server) Attach(server *http.Server) {
	if s.IdleTimeout == 0 {
		s.IdleTimeout = 2 * time.Minute
	}
	s.conns = map[*Conn]struct{}{}
	if server.TLSConfig == nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	server.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	server.TLSConfig.DynamicRecordSizingDisabled = true // answers are whole, and wanted whole
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": s.serve}
	server.RegisterOnShutdown(s.drain)
}

// serve is a connection's goroutine.
func (s *Server) serve(server *http.Server, nc *tls.Conn, h http.Handler) {
	ctx := context.Background()
	if based, ok := h.(interface{ BaseContext() context.Context }); ok {
		ctx = based.BaseContext()
	}
	limit := uint32(cmp.Or(s.MaxHeaderBytes, server.MaxHeaderBytes, http.DefaultMaxHeaderBytes))
	limit += 10 * 32 // each field counts 32 more than it has bytes (RFC 9113, 6.5.2): as net/http, for ten of them
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

// drain lets clients finish what they have begun and begin nothing more.
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

// Close ends the goroutines that wait for requests, once no connection is served any more.
func (s *Server) Close() { s.workers.close() }

// Listen returns the listener that an attached server is to serve on.
func (s *Server) Listen(ln net.Listener) net.Listener { return gathering{ln} }
