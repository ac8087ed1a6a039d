package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"clusterctl/daemons/api/header"
	"clusterctl/daemons/ingress/route"
)

// connListener is a listener for accepted connections that use HTTP/2.
type connListener struct {
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
	byConn sync.Map // maps net.Conn to its *conn
}

func (h *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *connListener) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *connListener) Addr() net.Addr { return &net.TCPAddr{} }

type clientKey struct{}

func (e *Engine) startHTTP2() {
	e.h2Listener = &connListener{conns: make(chan net.Conn), done: make(chan struct{})}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	e.h2 = &http.Server{
		Handler: http.HandlerFunc(
			e.serveHTTP2,
		), Protocols: &protocols, TLSConfig: &tls.Config{NextProtos: []string{"h2"}},
		// has no certificate, because the TLS handshake is already complete
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: e.cfg.MaxStreams, WriteByteTimeout: e.cfg.WriteTime},
		ErrorLog: slog.NewLogLogger(e.cfg.Log.Handler(),
			slog.LevelDebug), MaxHeaderBytes: e.cfg.MaxHead, IdleTimeout: e.cfg.Idle,
		ReadHeaderTimeout: e.cfg.HeadTime,
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
			c, _ := e.h2Listener.byConn.Load(nc)
			return context.WithValue(ctx, clientKey{}, c)
		},
		ConnState: func(nc net.Conn, s http.ConnState) {
			of, _ := e.h2Listener.byConn.Load(nc)
			c, ok := of.(*conn)
			if !ok {
				return
			}
			switch s {
			case http.StateActive:
				c.markBusy()
			case http.StateIdle:
				if c.waitingSince.Load() == 0 {
					c.markIdle()
				}
			case http.StateClosed:
				e.h2Listener.byConn.Delete(nc)
				e.unregister(c)
			}
		},
	}
	go func() { _ = e.h2.Serve(e.h2Listener) }()
}

// passToHTTP2 passes a connection with its buffer to the HTTP/2 server.
func (e *Engine) passToHTTP2(nc net.Conn, c *conn) {
	c.handedOver = true
	e.h2Listener.byConn.Store(nc, c)
	select {
	case e.h2Listener.conns <- nc:
	case <-e.h2Listener.done:
		e.h2Listener.byConn.Delete(nc)
		_ = nc.Close()
		e.unregister(c)
	}
}

// serveHTTP2 handles one request over HTTP/2.
func (e *Engine) serveHTTP2(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(clientKey{}).(*conn)
	gen := e.startRequest()
	defer gen.Add(-1)
	x := &stream{
		e:         e,
		c:         c,
		r:         r,
		start:     e.clock(),
		w:         w,
		writePace: writePace{controller: http.NewResponseController(w), wait: e.cfg.WriteTime},
	}
	defer x.record()
	// The remaining data is sent after the return, with the same write deadline.
	defer x.writePace.beforeWrite()
	x.serve()
}

// stream is one request over HTTP/2.
type stream struct {
	e         *Engine
	c         *conn
	r         *http.Request
	w         http.ResponseWriter
	writePace writePace
	start     int64

	rule            *route.Rule
	responseChanges *route.Headers // header changes of the response
	endpoint        *endpoint
	status          int
	sent            int64
}

// Method, Header and Query implement route.Request.
func (x *stream) Method() string { return x.r.Method }

// Header returns the value of a field. Several lines are joined to one list.
func (x *stream) Header(name string) (string, bool) {
	values := x.r.Header[textproto.CanonicalMIMEHeaderKey(name)]
	return strings.Join(values, ", "), len(values) > 0
}

// Query returns the value of a query parameter.
func (x *stream) Query(name string) (string, bool) { return queryValue(x.r.URL.RawQuery, name) }

func (x *stream) serve() {
	target := []byte(x.r.RequestURI)
	raw := target
	for i, ch := range target {
		if ch == '?' {
			raw = target[:i]
			break
		}
	}
	if len(raw) == 0 || raw[0] != '/' && string(raw) != "*" || x.r.Method == http.MethodConnect ||
		x.r.Method == http.MethodTrace {
		x.fail(405, "the method is not passed on")
		return
	}
	// HTTP/2 has no request line, but the request may be forwarded over HTTP/1.
	if !hasOnly(&tokenBytes, []byte(x.r.Method)) || !hasOnly(&targetBytes, target) {
		x.fail(errRequestLine.status, errRequestLine.reason)
		return
	}
	path, _, ok := route.PlainPath(raw, nil)
	if !ok {
		x.fail(errPath.status, errPath.reason)
		return
	}
	name := []byte(x.r.Host)
	if !isValidHost(name) || len(name) == 0 {
		x.fail(errHost.status, errHost.reason)
		return
	}
	x.rule = x.c.entry.table.Load().Find(hostname(name), path, x)
	switch {
	case x.rule == nil:
		x.fail(404, "no route")
		return
	case x.rule.ToHTTPS && !x.isSecure():
		x.redirect(&route.Redirect{Scheme: "https", Port: x.e.cfg.HTTPSPort, Code: 308})
		return
	case x.rule.Filters.Redirect != nil:
		x.redirect(x.rule.Filters.Redirect)
		return
	case x.rule.Policy.MaxBody > 0 && x.r.ContentLength > x.rule.Policy.MaxBody:
		x.fail(413, "the body is too large")
		return
	}
	chosen := selectBackend(x.rule.Backends)
	p := chosen.pool()
	if p == nil {
		x.fail(missingStatus(x.rule), "no backend")
		return
	}
	if bad := x.e.startCall(x.c); bad != nil {
		x.fail(bad.status, bad.reason)
		return
	}
	defer x.e.endCall(x.c)
	changes, answers := chosen.headerChanges(x.rule)
	x.responseChanges = answers
	ctx, cancel := withTotalTimeout(x.r.Context(), x.rule)
	defer cancel()
	q := x.backendRequest(changes)
	if q.body != nil &&
		// Over HTTP/2, a slow body does not occupy a backend connection, and long silent streams are normal.
		p.h2 == nil {
		q.body = &pacedBody{ReadCloser: q.body, controller: x.writePace.controller, pace: paceOf(x.rule),
			isTooSlow: &q.isTooSlow}
	}
	res, ep, bad := p.exchange(ctx, x.rule, q)
	if bad != nil {
		x.fail(bad.status, bad.reason)
		return
	}
	x.endpoint = ep
	x.copy(res)
}

func (x *stream) isSecure() bool {
	if x.c.trusted {
		for v := range header.Elements(x.r.Header, "X-Forwarded-Proto") {
			return strings.EqualFold(v, "https") // the first value is the protocol of the original client
		}
	}
	return x.c.secure
}

func (x *stream) redirect(r *route.Redirect) {
	x.status = r.Code
	x.w.Header().Set("Location", redirectLocation(r, x.isSecure(), x.r.Host, x.c.port, x.r.RequestURI))
	x.w.WriteHeader(r.Code)
}

func (x *stream) fail(status int, reason string) {
	x.status = status
	http.Error(x.w, http.StatusText(status)+": "+reason, status)
}

func (x *stream) record() {
	took := time.Duration(x.e.clock() - x.start)
	counterOf(x.e, x.rule).observe(x.status, took, x.sent)
	if x.e.log == nil {
		return
	}
	line := logEntry{
		client:   x.c.ip,
		method:   []byte(x.r.Method),
		host:     []byte(x.r.Host),
		target:   []byte(x.r.RequestURI),
		protocol: "HTTP/2.0",
		status:   x.status,
		sent:     x.sent,
		duration: took,
	}
	line.setRoute(x.rule, x.endpoint)
	x.e.log.add(&line)
}

// backendRequest returns the request for the backend.
func (x *stream) backendRequest(changes *route.Headers) *backendRequest {
	q := &backendRequest{
		method:  x.r.Method,
		target:  x.r.RequestURI,
		host:    x.r.Host,
		header:  x.r.Header.Clone(),
		length:  x.r.ContentLength,
		trailer: x.r.Trailer,
	}
	if x.r.ContentLength != 0 {
		q.body = x.r.Body
	}
	trailers := header.Has(x.r.Header, "Te", "trailers")
	for _, name := range hopByHopFields {
		delete(q.header, name)
	}
	if trailers {
		q.header.Set("Te", "trailers")
	}
	x.c.setForwarded(q.header, x.r.Host)
	path, _, _ := strings.Cut(x.r.RequestURI, "?")
	q.applyFilters(x.rule, changes, path, x.r.URL.RawQuery)
	return q
}

// copy sends the response to the client.
func (x *stream) copy(res *backendResponse) {
	defer res.close()
	x.status = res.status
	to := x.w.Header()
	for name, values := range res.header {
		to[name] = values
	}
	changeHeaders(to, x.responseChanges)
	if res.length >= 0 {
		to.Set("Content-Length", strconv.FormatInt(res.length, 10))
	}
	x.writePace.beforeWrite()
	x.w.WriteHeader(res.status)
	if res.length == 0 || res.body == nil {
		return
	}
	flush := x.writePace.controller
	if res.isEmpty() {
		_ = flush.Flush() // the next data may take long
		x.writePace.beforeWait()
	}
	b := getBuffer(copyBuffer)
	defer b.free()
	for {
		n, err := res.body.Read(b.b)
		if n > 0 {
			x.writePace.beforeWrite()
			if _, err := x.w.Write(b.b[:n]); err != nil {
				return
			}
			x.sent += int64(n)
			if err == nil && res.isEmpty() {
				if flush.Flush() != nil {
					return
				}
				x.writePace.beforeWait()
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(http.ErrAbortHandler) // abort, so that the client does not take the response for complete
		}
	}
	for name, values := range res.trailers() {
		to[http.TrailerPrefix+name] = values
	}
}
