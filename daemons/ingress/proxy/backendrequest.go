package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"clusterctl/daemons/ingress/route"
)

// backendRequest is a request to a backend in the form of net/http. It is used if at least one side uses HTTP/2.
type backendRequest struct {
	method, target, host string
	header               http.Header
	body                 io.ReadCloser // nil for none; Close interrupts a Read
	length               int64         // -1 if unknown
	trailer              http.Header   // filled at the end of the body
	isTooSlow            atomic.Bool   // the client sent the body too slowly
}

// backendResponse is the response to an outgoing request.
type backendResponse struct {
	status   int
	header   http.Header
	body     io.Reader // nil for none
	length   int64     // -1 if unknown
	trailers func() http.Header
	close    func()
	isEmpty  func() bool // reports whether no data of the body is available
}

// hopByHopFields are the hop-by-hop fields, which are not forwarded.
var hopByHopFields = []string{
	"Connection",
	"Keep-Alive",
	"Proxy-Connection",
	"Te",
	"Transfer-Encoding",
	"Upgrade",
	"Http2-Settings",
	"Proxy",
}

// setForwarded sets the fields that describe the client.
func (c *conn) setForwarded(h http.Header, host string) {
	before := h["X-Forwarded-For"]
	for name := range h {
		switch k := kindOf([]byte(name)); {
		case k != kindOther && strings.Contains(name, "_"):
			delete(h, name) // CGI-like programs cannot distinguish the underscore
		case k >= kindForwardedFor && k <= kindRealIP && !c.trusted:
			delete(h, name)
		}
	}
	all := string(c.ip)
	if c.trusted {
		for i := len(before) - 1; i >= 0; i-- {
			all = before[i] + ", " + all
		}
	}
	h["X-Forwarded-For"] = []string{all}
	addDefault := func(name, value string) {
		if h[name] == nil {
			h[name] = []string{value}
		}
	}
	proto := "http"
	if c.secure {
		proto = "https"
	}
	addDefault("X-Real-Ip", string(c.ip))
	addDefault("X-Forwarded-Proto", proto)
	addDefault("X-Forwarded-Host", host)
	addDefault("X-Forwarded-Port", strconv.Itoa(c.port))
}

// applyFilters applies a rule's filters.
func (q *backendRequest) applyFilters(rule *route.Rule, changes *route.Headers, path, query string) {
	changeHeaders(q.header, changes)
	r := rule.Filters.Rewrite
	if r == nil {
		return
	}
	if to, ok := rewrittenPath(r, []byte(path)); ok {
		if q.target = to; query != "" {
			q.target += "?" + query
		}
	}
	if r.Host != "" {
		q.host = r.Host
	}
}

func changeHeaders(h http.Header, by *route.Headers) {
	if by == nil {
		return
	}
	for _, name := range by.Remove {
		h.Del(name)
	}
	for _, p := range by.Set {
		h.Set(p.Name, p.Value)
	}
	for _, p := range by.Add {
		h.Add(p.Name, p.Value)
	}
}

// limitedBody is a body with a maximum size.
type limitedBody struct {
	io.ReadCloser
	remaining int64
	exceeded  atomic.Bool
}

func (l *limitedBody) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	if l.remaining -= int64(n); l.remaining < 0 {
		l.exceeded.Store(true)
		return 0, errTooLarge
	}
	return n, err
}

var errTooLarge = &statusError{413, "the body is too large"}

// exchange sends a request to an endpoint and returns the response. It tries another endpoint if a connection failed.
// It also does if the connection ended without a response and the request may be repeated.
func (p *pool) exchange(ctx context.Context, rule *route.Rule, q *backendRequest) (*backendResponse, *endpoint,
	*statusError) {
	again := q.body == nil && isRepeatable([]byte(q.method))
	var limit *limitedBody
	if q.body != nil && rule.Policy.MaxBody > 0 {
		limit = &limitedBody{ReadCloser: q.body, remaining: rule.Policy.MaxBody}
		q.body = limit
	}
	var tried []*endpoint
	cause := &statusError{503, "no endpoint"}
	fresh := false
	for range maxAttempts {
		ep := p.pick(tried, p.e.clock())
		if ep == nil && len(tried) > 0 && fresh {
			ep = p.pick(nil, p.e.clock())
		}
		if ep == nil {
			break
		}
		ep.active.Add(1)
		call := ep.call
		if p.h2 != nil {
			call = ep.callHTTP2
		}
		res, err := call(ctx, rule, q, !again, fresh)
		if err == nil {
			end := res.close
			res.close = func() {
				end()
				ep.active.Add(-1)
			}
			return res, ep, nil
		}
		ep.active.Add(-1)
		var bad *statusError
		switch {
		case limit != nil && limit.exceeded.Load():
			return nil, ep, errTooLarge
		case q.isTooSlow.Load():
			return nil, ep, errSlowBody
		case errors.Is(context.Cause(ctx), errTotalTimeout):
			return nil, ep, errTotalTimeout
		case ctx.Err() != nil:
			return nil, ep, &statusError{499, "the client closed the connection"}
		case errors.As(err, &bad):
			return nil, ep, bad
		case isDialError(err):
			tried = append(tried, ep)
			if cause = (&statusError{502, "no connection to the backend"}); isTimeout(err) {
				cause = &statusError{504, "no connection to the backend in time"}
			}
			continue
		case isTimeout(err) || errors.Is(err, context.DeadlineExceeded):
			return nil, ep, &statusError{504, "the backend did not answer in time"}
		}
		cause = &statusError{502, "the backend ended the connection"}
		if !again {
			break
		}
		if fresh {
			tried = append(tried, ep)
		}
		fresh = true
	}
	return nil, nil, cause
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, errHandshake)
}

var errHandshake = errors.New("TLS handshake with the backend")

// transport returns the HTTP/2 transport to the endpoints of a backend.
func (p *pool) transport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP2(p.tls != nil)
	protocols.SetUnencryptedHTTP2(p.tls == nil)
	t := &http.Transport{
		Protocols: &protocols, DisableCompression: true, IdleConnTimeout: p.e.cfg.UpstreamIdle,
		MaxResponseHeaderBytes: int64(p.e.cfg.MaxHead),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	if p.tls != nil {
		t.TLSClientConfig = p.tls.Clone()
		t.TLSClientConfig.NextProtos = []string{"h2"}
	}
	dialer := &net.Dialer{}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if wait, ok := ctx.Value(connectKey{}).(time.Duration); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, wait)
			defer cancel()
		}
		return dialer.DialContext(ctx, network, address)
	}
	return t
}

type connectKey struct{}

// callHTTP2 sends a request over HTTP/2.
func (e *endpoint) callHTTP2(ctx context.Context, rule *route.Rule, q *backendRequest, _,
	_ bool) (*backendResponse, error) {
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, connectKey{}, rule.Policy.Connect))
	scheme := "http"
	if e.pool.tls != nil {
		scheme = "https"
	}
	u := &url.URL{Scheme: scheme, Host: e.addrText}
	if at, err := url.ParseRequestURI(q.target); err == nil {
		u.Path, u.RawPath, u.RawQuery, u.ForceQuery = at.Path, at.RawPath, at.RawQuery, at.ForceQuery
	} else {
		u.Opaque = q.target
	}
	r := (&http.Request{Method: q.method, URL: u, Host: q.host, Header: q.header, ContentLength: q.length,
		Trailer: q.trailer, Proto: "HTTP/2.0", ProtoMajor: 2}).WithContext(
		ctx,
	)
	if q.body != nil {
		r.Body = q.body
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = nil // prevents the default of net/http
	}
	silent := time.AfterFunc(rule.Policy.Read, func() { cancel(os.ErrDeadlineExceeded) })
	res, err := e.pool.h2.RoundTrip(r)
	if err != nil {
		silent.Stop()
		if cause := context.Cause(ctx); cause != nil && errors.Is(cause, os.ErrDeadlineExceeded) {
			err = cause
		}
		cancel(nil)
		if isDialError(err) {
			e.eject()
		}
		return nil, err
	}
	e.failures.Store(0)
	in := &backendResponse{
		status: res.StatusCode, header: res.Header, body: &timedBody{res.Body, silent, rule.Policy.Read},
		length:   res.ContentLength,
		trailers: func() http.Header { return res.Trailer }, isEmpty: func() bool { return true },
	}
	in.close = func() {
		silent.Stop()
		_ = res.Body.Close()
		cancel(nil)
	}
	for _, name := range append([]string{"Content-Length"}, hopByHopFields...) {
		delete(in.header, name)
	}
	return in, nil
}

// timedBody is a body with a timer that restarts at each piece.
type timedBody struct {
	io.Reader
	timer *time.Timer
	wait  time.Duration
}

func (p *timedBody) Read(b []byte) (int, error) {
	p.timer.Reset(p.wait)
	return p.Reader.Read(b)
}
