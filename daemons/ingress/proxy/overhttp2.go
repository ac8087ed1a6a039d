package proxy

import (
	"context"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"sync/atomic"
	"time"

	"clusterctl/daemons/ingress/route"
)

// forwardHTTP2 forwards an HTTP/1 request to an HTTP/2 backend.
func (c *conn) forwardHTTP2(rule *route.Rule, p *pool) {
	q := &backendRequest{
		method: string(c.req.method),
		target: string(c.req.target),
		host:   string(c.req.host),
		header: http.Header{},
	}
	for i := range c.req.fields {
		if f := &c.req.fields[i]; !f.dropped && f.kind != kindContentLength && f.kind != kindHost &&
			f.kind != kindExpect {
			name := textproto.CanonicalMIMEHeaderKey(string(f.name))
			q.header[name] = append(q.header[name], string(f.value))
		}
	}
	if c.req.hasTETrailers {
		q.header.Set("Te", "trailers")
	}
	c.setForwarded(q.header, q.host)
	q.applyFilters(rule, c.requestChanges, string(c.req.path), string(c.req.query))
	var body *connBody
	if c.req.chunked || c.req.length > 0 {
		body = &connBody{c: c, pace: paceOf(rule), isTooSlow: &q.isTooSlow, remaining: c.req.length,
			reading: make(chan struct{}, 1)}
		q.body, q.length = body, c.req.length
	}
	ctx, cancel := withTotalTimeout(context.Background(), rule)
	defer cancel()
	res, ep, bad := p.exchange(ctx, rule, q)
	if body != nil {
		defer func() { c.ended = c.ended || !body.stop() }()
	}
	if bad != nil {
		c.reject(bad.status, bad.reason)
		return
	}
	defer res.close()
	c.backend, c.status = ep, res.status
	changeHeaders(res.header, c.responseChanges)
	c.sendBackendResponse(res)
}

// sendBackendResponse sends a response in HTTP/1 form.
func (c *conn) sendBackendResponse(res *backendResponse) {
	out := append(c.out[:0], "HTTP/1.1 "+strconv.Itoa(res.status)+" "+http.StatusText(res.status)+"\r\n"...)
	for name, values := range res.header {
		for _, v := range values {
			out = append(out, name+": "+v+"\r\n"...)
		}
	}
	none := string(c.req.method) == http.MethodHead || res.status == 204 || res.status == 304 || res.body == nil
	inChunks := !none && res.length < 0 && c.req.minor > 0
	switch {
	case res.length >= 0 && res.status != 204:
		out = append(out, "Content-Length: "+strconv.FormatInt(res.length, 10)+"\r\n"...)
	case inChunks:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case !none:
		c.ended = true
	}
	if c.ended = c.ended || c.isDraining(); c.ended {
		out = append(out, "Connection: close\r\n"...)
	} else if c.req.minor == 0 {
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	if c.out = append(out, '\r', '\n'); c.write(c.out, writeTimeout) != nil {
		c.ended = true
		return
	}
	if none {
		return
	}
	b := getBuffer(copyBuffer)
	defer b.free()
	for {
		n, err := res.body.Read(b.b)
		c.out = c.out[:0]
		if n > 0 && inChunks {
			c.out = append(strconv.AppendInt(c.out, int64(n), 16), '\r', '\n')
		}
		c.out = append(c.out, b.b[:n]...)
		if n > 0 && inChunks {
			c.out = append(c.out, '\r', '\n')
		}
		if c.sent += int64(n); err == io.EOF && inChunks {
			c.out = append(c.out, '0', '\r', '\n')
			for name, values := range res.trailers() {
				for _, v := range values {
					c.out = append(c.out, name+": "+v+"\r\n"...)
				}
			}
			c.out = append(c.out, '\r', '\n')
		}
		if len(c.out) > 0 && c.write(c.out, writeTimeout) != nil || err != nil && err != io.EOF {
			c.ended = true
			return
		}
		if err == io.EOF {
			return
		}
	}
}

// connBody reads the body of the connection's current request.
type connBody struct {
	c            *conn
	pace         bodyPace
	isTooSlow    *atomic.Bool
	remaining    int64         // bytes left; -1 with chunks
	reading      chan struct{} // full while a Read is running
	closed       atomic.Bool
	isComplete   atomic.Bool
	continueSent bool    // 100 Continue was sent
	headBuffer   *buffer // buffer with the request head, after another buffer was needed
}

// Read implements io.Reader.
func (b *connBody) Read(p []byte) (int, error) {
	b.reading <- struct{}{}
	defer func() { <-b.reading }()
	c := b.c
	for !b.isComplete.Load() {
		if b.closed.Load() {
			return 0, http.ErrBodyReadAfterClose
		}
		if c.buf.r == c.buf.w {
			if c.req.needsContinue && !b.continueSent {
				b.continueSent = true
				if err := c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"), writeTimeout); err != nil {
					return 0, err
				}
			}
			if err := b.fill(); err != nil {
				return 0, err
			}
		}
		existing := c.buf.bytes()
		existing = existing[:min(len(existing), len(p))]
		n, data := 0, existing
		if b.remaining < 0 {
			var err *statusError
			if n, data, err = c.body.parse(existing); err != nil {
				return 0, err
			}
			b.isComplete.Store(c.body.isDone())
		} else {
			data = data[:min(int64(len(data)), b.remaining)]
			n = len(data)
			b.remaining -= int64(n)
			b.isComplete.Store(b.remaining == 0)
		}
		copy(p, data)
		if c.buf.r += n; len(data) > 0 {
			return len(data), nil
		}
	}
	return 0, io.EOF
}

// fill reads more data into a separate buffer, because the request head in the connection's buffer is still needed for
// the log.
func (b *connBody) fill() error {
	c := b.c
	if b.headBuffer == nil {
		b.headBuffer = c.buf
		c.buf = getBuffer(upstreamBuffer)
	}
	c.buf.makeRoom(len(c.buf.b))
	start := time.Now()
	_ = c.nc.SetReadDeadline(start.Add(b.pace.timeLeft()))
	if b.closed.Load() {
		return http.ErrBodyReadAfterClose
	}
	err := c.readSome()
	b.pace.count(int64(len(c.buf.bytes())), time.Since(start))
	if isTimeout(err) && !b.closed.Load() {
		b.isTooSlow.Store(true)
		err = errSlowBody
	}
	return err
}

// Close implements io.Closer. It interrupts a Read.
func (b *connBody) Close() error {
	if !b.closed.Swap(true) && !b.isComplete.Load() {
		_ = b.c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

// stop stops reading, and reports whether the whole body was read.
func (b *connBody) stop() bool {
	_ = b.Close()
	b.reading <- struct{}{}
	b.c.readDeadline = deadline{}
	if b.headBuffer != nil {
		b.c.headBuffer = b.headBuffer
	}
	return b.isComplete.Load()
}
