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

// overHTTP2 forwards an HTTP/1 request to an HTTP/2 backend.
func (c *conn) overHTTP2(rule *route.Rule, p *pool) {
	q := &outgoing{
		method: string(c.req.method),
		target: string(c.req.target),
		host:   string(c.req.host),
		header: http.Header{},
	}
	for i := range c.req.fields {
		if f := &c.req.fields[i]; !f.dropped && f.kind != contentLength && f.kind != host && f.kind != expect {
			name := textproto.CanonicalMIMEHeaderKey(string(f.name))
			q.header[name] = append(q.header[name], string(f.value))
		}
	}
	if c.req.trailers {
		q.header.Set("Te", "trailers")
	}
	c.tellForwarded(q.header, q.host)
	q.filter(rule, c.headers, string(c.req.path), string(c.req.query))
	var body *connBody
	if c.req.chunked || c.req.length > 0 {
		body = &connBody{c: c, pace: paceOf(rule), late: &q.late, left: c.req.length, busy: make(chan struct{}, 1)}
		q.body, q.length = body, c.req.length
	}
	ctx, cancel := within(context.Background(), rule)
	defer cancel()
	res, ep, bad := p.exchange(ctx, rule, q)
	if body != nil {
		defer func() { c.ended = c.ended || !body.end() }()
	}
	if bad != nil {
		c.reject(bad.status, bad.why)
		return
	}
	defer res.close()
	c.backend, c.status = ep, res.status
	change(res.header, c.answers)
	c.passIncoming(res)
}

// passIncoming sends a response in HTTP/1 form.
func (c *conn) passIncoming(res *incoming) {
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
	if c.ended = c.ended || c.draining(); c.ended {
		out = append(out, "Connection: close\r\n"...)
	} else if c.req.minor == 0 {
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	if c.out = append(out, '\r', '\n'); c.write(c.out, writeTime) != nil {
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
		if len(c.out) > 0 && c.write(c.out, writeTime) != nil || err != nil && err != io.EOF {
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
	c      *conn
	pace   bodyPace
	late   *atomic.Bool
	left   int64         // bytes left; -1 with chunks
	busy   chan struct{} // full while a Read is running
	closed atomic.Bool
	whole  atomic.Bool
	told   bool    // 100 Continue was sent
	head   *buffer // buffer with the request head, after another buffer was needed
}

// Read implements io.Reader.
func (b *connBody) Read(p []byte) (int, error) {
	b.busy <- struct{}{}
	defer func() { <-b.busy }()
	c := b.c
	for !b.whole.Load() {
		if b.closed.Load() {
			return 0, http.ErrBodyReadAfterClose
		}
		if c.buf.r == c.buf.w {
			if c.req.expects && !b.told {
				b.told = true
				if err := c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"), writeTime); err != nil {
					return 0, err
				}
			}
			if err := b.fill(); err != nil {
				return 0, err
			}
		}
		have := c.buf.bytes()
		have = have[:min(len(have), len(p))]
		n, data := 0, have
		if b.left < 0 {
			var err *malformed
			if n, data, err = c.body.next(have); err != nil {
				return 0, err
			}
			b.whole.Store(c.body.done())
		} else {
			data = data[:min(int64(len(data)), b.left)]
			n = len(data)
			b.left -= int64(n)
			b.whole.Store(b.left == 0)
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
	if b.head == nil {
		b.head = c.buf
		c.buf = getBuffer(upstreamBuffer)
	}
	c.buf.room(len(c.buf.b))
	began := time.Now()
	_ = c.nc.SetReadDeadline(began.Add(b.pace.within()))
	if b.closed.Load() {
		return http.ErrBodyReadAfterClose
	}
	err := c.read()
	b.pace.took(int64(len(c.buf.bytes())), time.Since(began))
	if isTimeout(err) && !b.closed.Load() {
		b.late.Store(true)
		err = errSlowBody
	}
	return err
}

// Close implements io.Closer. It interrupts a Read.
func (b *connBody) Close() error {
	if !b.closed.Swap(true) && !b.whole.Load() {
		_ = b.c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

// end stops reading, and reports whether the whole body was read.
func (b *connBody) end() bool {
	_ = b.Close()
	b.busy <- struct{}{}
	b.c.reading = deadline{}
	if b.head != nil {
		b.c.old = b.head
	}
	return b.whole.Load()
}
