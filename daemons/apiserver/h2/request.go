package h2

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"

	fields "clusterctl/daemons/api/header"
)

// onHeaders begins a stream, or ends the body of a stream with trailers.
func (c *Conn) onHeaders(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	wrong := http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	introduced := c.canBeginStream(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams.open[id]; st != nil {
		return c.onTrailers(st, f)
	}
	switch {
	case id%2 == 0:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case c.streams.wasReset(id):
		return nil
	case id <= c.streams.newest:
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	case c.end.sentGoAway:
		return nil // by GOAWAY the client knows that this stream was not begun
	}
	c.streams.newest = id
	if f.HasPriority() && f.Priority.StreamDep == id {
		return wrong
	}
	if len(c.streams.open) >= maxStreams || !introduced {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	}
	st := &stream{conn: c, id: id, window: c.output.initial}
	if !c.streams.countHeaders(st, headerSize(f)) {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	}
	st.cond.L = &c.mu
	st.response.st, st.body = st,
		body{st: st, contentLength: -1, window: flowWindow{available: windowSize, size: windowSize}}
	if !st.setRequest(f) {
		c.streams.uncountHeaders(st)
		return wrong
	}
	c.streams.open[id] = st
	if f.Truncated {
		st.req.Header = http.Header{}
		st.response.errorStatus = http.StatusRequestHeaderFieldsTooLarge
	}
	switch {
	case st.canDefer():
		return c.serveOrBegin(st)
	case st.canHold():
		c.holdForBody(st)
		return nil
	}
	return c.begin(st)
}

// setRequest sets the stream's request from its headers. It returns false if they are invalid.
func (st *stream) setRequest(f *http2.MetaHeadersFrame) bool {
	var method, scheme, path, authority string
	for _, field := range f.PseudoFields() {
		switch field.Name {
		case ":method":
			method = field.Value
		case ":scheme":
			scheme = field.Value
		case ":path":
			path = field.Value
		case ":authority":
			authority = field.Value
		default:
			return false // no extension has been negotiated
		}
	}
	if !f.Truncated && (method == "" || path == "" || scheme != "https" && scheme != "http") {
		return false // this refuses CONNECT as well, which is not supported
	}
	fields := f.RegularFields()
	header := make(http.Header, len(fields))
	values := make([]string, len(fields))
	for i, field := range fields {
		switch field.Name {
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			return false
		case "te":
			if field.Value != "trailers" {
				return false
			}
		}
		key := canonicalName(field.Name)
		values[i] = field.Value
		if existing := header[key]; existing == nil {
			header[key] = values[i : i+1 : i+1]
		} else if field.Name == "cookie" {
			header[key] = []string{existing[0] + "; " + field.Value}
		} else {
			header[key] = append(existing, field.Value)
		}
	}
	if authority == "" {
		authority = header.Get("Host")
	}
	delete(header, "Host")
	target, err := requestURL(method, path)
	if err != nil && !f.Truncated {
		return false
	}
	if target == nil {
		target = &url.URL{}
	}
	st.req = &http.Request{
		Method: method, URL: target, RequestURI: path, Proto: "HTTP/2.0", ProtoMajor: 2, Header: header,
		Host: authority, RemoteAddr: st.conn.client.remote, TLS: &st.conn.client.tls, Body: http.NoBody,
	}
	if !st.setBodyHeaders(f.StreamEnded()) {
		return false
	}
	if st.canDefer() {
		st.req = st.req.WithContext(endedContext)
	}
	return true
}

// setBodyHeaders applies the headers that describe the body. It returns false if they are invalid.
func (st *stream) setBodyHeaders(ended bool) bool {
	header := st.req.Header
	if ended {
		st.body.isComplete = true
		length := header["Content-Length"]
		return len(length) == 0 || length[0] == "0"
	}
	st.req.Body, st.req.ContentLength = &st.body, -1
	if length := header["Content-Length"]; len(length) > 0 {
		n, err := strconv.ParseUint(length[0], 10, 63)
		if err != nil || len(length) > 1 {
			return false
		}
		st.body.contentLength, st.req.ContentLength = int64(n), int64(n)
	}
	if fields.Has(header, "Expect", "100-continue") {
		st.body.awaitsContinue = true
		delete(header, "Expect")
	}
	for _, list := range header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			switch key := http.CanonicalHeaderKey(textproto.TrimString(name)); key {
			case "Transfer-Encoding", "Trailer", "Content-Length", "":
			default:
				if st.req.Trailer == nil {
					st.req.Trailer = http.Header{}
				}
				st.req.Trailer[key] = nil
			}
		}
	}
	delete(header, "Trailer")
	return true
}

func requestURL(method, path string) (*url.URL, error) {
	if path == "*" && method == http.MethodOptions {
		return &url.URL{Path: "*"}, nil
	}
	if !strings.HasPrefix(path, "/") {
		return nil, url.InvalidHostError(path)
	}
	return url.ParseRequestURI(path)
}

// onTrailers ends a body with trailers. The caller holds c.mu.
func (c *Conn) onTrailers(st *stream, f *http2.MetaHeadersFrame) error {
	switch {
	case st.body.isComplete:
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeStreamClosed}
	case !f.StreamEnded() || len(f.PseudoFields()) > 0:
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	for _, field := range f.RegularFields() {
		key := canonicalName(field.Name)
		if _, announced := st.req.Trailer[key]; announced {
			st.req.Trailer[key] = append(st.req.Trailer[key], field.Value)
		}
	}
	return c.endBody(st)
}

// canonicalName is like http.CanonicalHeaderKey, but faster for common headers.
func canonicalName(name string) string {
	if key, ok := commonNames[name]; ok {
		return key
	}
	return http.CanonicalHeaderKey(name)
}

var commonNames = func() map[string]string {
	keys := map[string]string{}
	for _, key := range []string{
		"Accept", "Accept-Encoding", "Authorization", "Content-Encoding", "Content-Length", "Content-Type", "Cookie",
		"Host", "If-None-Match",
		"Impersonate-User", "Impersonate-Group", "Kubectl-Command", "Kubectl-Session", "Te", "Traceparent",
		"User-Agent", "X-Forwarded-For",
	} {
		keys[strings.ToLower(key)] = key
	}
	return keys
}()
