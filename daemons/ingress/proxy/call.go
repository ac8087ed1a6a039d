package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"clusterctl/daemons/ingress/route"
)

// call sends a request over HTTP/1.
func (e *endpoint) call(ctx context.Context, rule *route.Rule, q *backendRequest, certain,
	fresh bool) (*backendResponse, error) {
	var up *upstream
	if !fresh {
		up = e.takeIdle(certain)
	}
	if up == nil {
		var err error
		if up, err = e.dial(rule.Policy.Connect); err != nil {
			return nil, err
		}
	}
	engine := e.pool.e
	if up.writeDeadline.extend(engine.clock(), rule.Policy.Send) {
		_ = up.nc.SetWriteDeadline(engine.timeAt(up.writeDeadline.at))
	}
	stop := context.AfterFunc(ctx, func() { _ = up.nc.SetDeadline(time.Unix(1, 0)) })
	b := &responseBody{e: engine, up: up, wait: rule.Policy.Read, detach: stop}
	if _, err := up.nc.Write(q.appendHead(nil)); err != nil {
		b.close()
		return nil, err
	}
	if q.body != nil {
		b.bodySent = make(chan bool, 1)
		b.body = q.body
		go func() { b.bodySent <- q.send(up, rule.Policy.Send) }()
	}
	for {
		if err := up.readHead(engine, &b.head, engine.clock()+int64(rule.Policy.Read), nil); err != nil {
			b.close()
			return nil, err
		}
		if b.head.status >= 200 {
			break
		}
		if b.head.status == 101 {
			b.close()
			return nil, &statusError{502, "the backend switches protocols unasked"}
		}
	}
	return b.backendResponse(q.method == http.MethodHead), nil
}

// appendHead appends the head of the request in HTTP/1 form.
func (q *backendRequest) appendHead(out []byte) []byte {
	out = append(out, q.method+" "+q.target+" HTTP/1.1\r\nHost: "+q.host+"\r\n"...)
	for name, values := range q.header {
		if name == "Content-Length" || name == "Host" {
			continue
		}
		for _, v := range values {
			out = append(out, name+": "+v+"\r\n"...)
		}
	}
	switch {
	case q.body == nil:
		if q.method == http.MethodPost || q.method == http.MethodPut || q.method == http.MethodPatch {
			out = append(out, "Content-Length: 0\r\n"...)
		}
	case q.length >= 0:
		out = append(out, "Content-Length: "+strconv.FormatInt(q.length, 10)+"\r\n"...)
	default:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	return append(out, '\r', '\n')
}

// send sends the body, and reports whether it was sent completely.
func (q *backendRequest) send(up *upstream, wait time.Duration) bool {
	b := getBuffer(copyBuffer)
	defer b.free()
	var out []byte
	for {
		n, err := q.body.Read(b.b)
		out = out[:0]
		if n > 0 && q.length < 0 {
			out = strconv.AppendInt(out, int64(n), 16)
			out = append(out, '\r', '\n')
		}
		out = append(out, b.b[:n]...)
		if n > 0 && q.length < 0 {
			out = append(out, '\r', '\n')
		}
		if err == io.EOF && q.length < 0 {
			out = append(out, '0', '\r', '\n')
			for name, values := range q.trailer {
				for _, v := range values {
					if kindOf([]byte(name)) == kindOther {
						out = append(out, name+": "+v+"\r\n"...)
					}
				}
			}
			out = append(out, '\r', '\n')
		}
		_ = up.nc.SetWriteDeadline(time.Now().Add(wait))
		if _, err := up.nc.Write(out); err != nil {
			return false
		}
		if err != nil {
			if err != io.EOF {
				_ = up.nc.Close() // an incomplete request gets no response
			}
			return err == io.EOF
		}
	}
}

// responseBody reads the body of a response over HTTP/1. It keeps the connection for reuse if the body was read
// completely.
type responseBody struct {
	e      *Engine
	up     *upstream
	wait   time.Duration
	head   response
	detach func() bool // separates the connection from the request's context; reports false if the context has ended

	chunks    chunks
	remaining int64
	framing   framing
	ended     bool
	bodySent  chan bool // receives whether the whole request body was sent; nil if there is none
	body      io.Closer
}

func (b *responseBody) backendResponse(head bool) *backendResponse {
	in := &backendResponse{status: b.head.status, header: http.Header{}, length: -1, close: b.close,
		trailers: b.trailers}
	for i := range b.head.fields {
		if f := &b.head.fields[i]; !f.dropped && f.kind != kindContentLength {
			name := textproto.CanonicalMIMEHeaderKey(string(f.name))
			in.header[name] = append(in.header[name], string(f.value))
		}
	}
	in.isEmpty = b.isEmpty
	switch {
	case !b.head.hasBody(head):
		b.framing, b.ended = framingNone, true
		if head {
			in.length = b.head.length
		}
		return in
	case b.head.chunked:
		b.framing = framingChunks
	case b.head.length >= 0:
		b.framing, b.remaining, in.length = framingLength, b.head.length, b.head.length
		b.ended = b.remaining == 0
	default:
		b.framing = framingUntilClose
	}
	in.body = b
	return in
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	for !b.ended {
		if b.up.buf.r == b.up.buf.w {
			if err := b.up.fill(b.e, b.wait, 0); err != nil {
				if errors.Is(err, io.EOF) {
					if b.framing != framingUntilClose {
						return 0, io.ErrUnexpectedEOF
					}
					b.ended = true
					continue
				}
				return 0, err
			}
		}
		existing := b.up.buf.bytes()
		existing = existing[:min(len(existing), len(p))]
		n, data := 0, existing
		switch b.framing {
		case framingChunks:
			var err *statusError
			if n, data, err = b.chunks.parse(existing); err != nil {
				return 0, err
			}
			b.ended = b.chunks.isDone()
		case framingLength:
			data = data[:min(int64(len(data)), b.remaining)]
			n = len(data)
			b.remaining -= int64(n)
			b.ended = b.remaining == 0
		default:
			n = len(data)
		}
		copy(p, data)
		if b.up.buf.r += n; len(data) > 0 {
			return len(data), nil
		}
	}
	return 0, io.EOF
}

// isEmpty reports whether no data is available, so that the next read may take long.
func (b *responseBody) isEmpty() bool {
	if b.ended || b.framing != framingChunks {
		return !b.ended && b.up.buf.r == b.up.buf.w
	}
	ahead := b.chunks // the buffer may hold only the end of a chunk
	ahead.trailer = nil
	at := 0
	for rest := b.up.buf.bytes(); at < len(rest) && !ahead.isDone(); {
		n, data, err := ahead.parse(rest[at:])
		if len(data) > 0 || err != nil {
			return false
		}
		at += n
	}
	return !ahead.isDone()
}

func (b *responseBody) trailers() http.Header {
	if len(b.chunks.trailer) <= 2 {
		return nil
	}
	h := http.Header{}
	for text := range bytes.SplitSeq(b.chunks.trailer, []byte("\r\n")) {
		if name, value, ok := bytes.Cut(text, []byte(":")); ok {
			h.Add(string(name), string(trim(value)))
		}
	}
	return h
}

func (b *responseBody) close() {
	clean := b.detach() && b.ended && b.framing != framingUntilClose && b.head.isPersistent() &&
		b.up.buf.r == b.up.buf.w
	if b.bodySent != nil {
		select {
		case all := <-b.bodySent:
			clean = clean && all
		default:
			clean = false
			_ = b.up.nc.SetDeadline(time.Unix(1, 0))
			_ = b.body.Close()
			<-b.bodySent
		}
	}
	if b.up.writeDeadline = (deadline{}); clean {
		b.up.endpoint.putIdle(b.up)
	} else {
		b.up.close()
	}
}
