package h2

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"

	fields "clusterctl/daemons/api/header"
)

// responseWriter is a stream's http.ResponseWriter. Written data goes to the connection's buffer, as far as the
// client's window allows. It is sent by a flush, at the end of the response, or when the buffer has enough.
type responseWriter struct {
	st          *stream
	header      http.Header
	wroteHeader bool // whether the headers have been written
	isBodiless  bool // whether the response has no body, whatever is written
	finished    bool
	code        int
	length      int64 // Content-Length; -1 if unknown
	written     int64
	isTruncated bool // whether the body is incomplete, because a write failed
	errorStatus int  // status code to send instead of calling the handler; 0 if none
	deadline    time.Time
	trailers    []string // names of the announced trailers
}

// Header implements http.ResponseWriter.
func (r *responseWriter) Header() http.Header {
	if r.header == nil {
		r.header = make(http.Header, 8)
	}
	return r.header
}

// WriteHeader implements http.ResponseWriter.
func (r *responseWriter) WriteHeader(code int) {
	c := r.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.wroteHeader:
	case code >= 100 && code < 200 && code != http.StatusSwitchingProtocols:
		r.inform(code, r.header)
		c.flushLocked()
	default:
		r.begin(code, nil)
	}
}

// inform sends an informational (1xx) response. The caller holds c.mu.
func (r *responseWriter) inform(code int, header http.Header) {
	if r.st.endReason == nil {
		r.st.conn.output.headers(r.st.id, appendHeader(appendStatus(nil, code), header, true), false)
	}
}

// begin writes the headers. They are sent together with what follows. The caller holds c.mu.
func (r *responseWriter) begin(code int, first []byte) {
	header := r.Header()
	r.wroteHeader, r.code, r.length = true, code, -1
	if text := header.Get("Content-Length"); text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			r.length = n
		} else {
			delete(header, "Content-Length")
		}
	}
	bodiless := code == http.StatusNoContent || code == http.StatusNotModified || code < 200
	r.isBodiless = bodiless || r.st.req.Method == http.MethodHead
	if len(first) > 0 && !bodiless && header["Content-Type"] == nil && header.Get("Content-Encoding") == "" {
		header.Set("Content-Type", http.DetectContentType(first))
	}
	for _, list := range header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			r.trailers = append(r.trailers, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	if r.st.endReason != nil {
		return
	}
	scratch := r.st.conn.output.scratch[:0]
	scratch = appendHeader(appendStatus(scratch, code), header, false)
	if header["Date"] == nil {
		scratch = appendField(scratch, "date", httpDate())
	}
	r.finished = (r.isBodiless || r.length == 0) && len(r.trailers) == 0
	r.st.conn.output.headers(r.st.id, scratch, r.finished)
	r.st.conn.output.scratch = scratch
	if fields.Has(header, "Connection", "close") {
		r.st.conn.sendGoAwayLocked()
	}
}

// Write implements http.ResponseWriter.
func (r *responseWriter) Write(p []byte) (int, error) {
	st, c := r.st, r.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.wroteHeader {
		r.begin(http.StatusOK, p)
	}
	if err := bodyAllowed(r.code); err != nil {
		return 0, err
	}
	if r.written += int64(len(p)); r.length >= 0 && r.written > r.length {
		return 0, http.ErrContentLength
	}
	if r.isBodiless {
		return len(p), nil
	}
	done := 0
	for {
		if err := cmp.Or(st.endReason, c.end.failed); err != nil {
			return done, err
		}
		done += st.buffer(p[done:])
		if len(c.output.pending) >= flushThreshold {
			c.flushLocked()
		}
		if done == len(p) {
			return done, nil
		}
		// Flush first, because the client may have to receive the buffered data before it sends a window update.
		// Flushing releases the lock, and changes made meanwhile do not wake this goroutine. So check again.
		c.flushLocked()
		if st.endReason != nil || c.end.failed != nil || st.window > 0 && !st.blocked {
			continue
		}
		if err := st.wait(&r.deadline); err != nil {
			r.isTruncated = true
			return done, err
		}
	}
}

func bodyAllowed(code int) error {
	if code == http.StatusNoContent || code == http.StatusNotModified {
		return http.ErrBodyNotAllowed
	}
	return nil
}

// buffer appends as much of p to the connection's buffer as the window and the buffer allow, and returns how many bytes
// that was. The caller holds c.mu.
func (st *stream) buffer(p []byte) int {
	o := &st.conn.output
	n := int(max(0, min(int64(len(p)), st.window, o.window, int64(maxPending-len(o.pending)))))
	if n > 0 {
		o.data(st.id, p[:n], false)
		st.window -= int64(n)
		o.window -= int64(n)
	}
	if n < len(p) && st.window > 0 && !st.blocked {
		st.blocked = true
		o.blocked = append(o.blocked, st)
	}
	return n
}

// FlushError sends the buffered data.
func (r *responseWriter) FlushError() error {
	c := r.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.wroteHeader {
		r.begin(http.StatusOK, nil)
	}
	c.flushLocked()
	return cmp.Or(r.st.endReason, c.end.failed)
}

// Flush implements http.Flusher.
func (r *responseWriter) Flush() { _ = r.FlushError() }

// SetReadDeadline implements read deadlines for http.ResponseController.
func (r *responseWriter) SetReadDeadline(t time.Time) error {
	r.st.conn.mu.Lock()
	defer r.st.conn.mu.Unlock()
	r.st.body.deadline = t
	r.st.cond.Broadcast()
	return nil
}

// SetWriteDeadline implements write deadlines for http.ResponseController.
func (r *responseWriter) SetWriteDeadline(t time.Time) error {
	r.st.conn.mu.Lock()
	defer r.st.conn.mu.Unlock()
	r.deadline = t
	r.st.cond.Broadcast()
	return nil
}

// EnableFullDuplex does nothing: full duplex is always enabled.
func (r *responseWriter) EnableFullDuplex() error { return nil }

// finish ends the response after its handler has returned, and sends it.
func (r *responseWriter) finish() {
	c := r.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	r.complete()
	c.flushTogether()
}

// complete ends the response. The caller holds c.mu.
func (r *responseWriter) complete() {
	st, c := r.st, r.st.conn
	if !r.wroteHeader {
		r.begin(http.StatusOK, nil)
	}
	if st.endReason != nil || c.end.failed != nil {
		return
	}
	cut := !r.finished && (r.isTruncated || !r.isBodiless && r.length > r.written)
	switch {
	case r.finished:
	case cut:
		c.streams.recordReset(st.id)
		c.output.reset(st.id, http2.ErrCodeInternal) // the body is shorter than announced
	default:
		if block := r.appendTrailers(nil); len(block) > 0 {
			c.output.headers(st.id, block, true)
		} else {
			c.output.data(st.id, nil, true)
		}
	}
	st.endReason = errReset
	if !cut && !st.body.isComplete {
		if c.discardBody(st) {
			return
		}
		c.resetUnread(st)
	}
	c.remove(st)
}

func (r *responseWriter) appendTrailers(to []byte) []byte {
	for _, name := range r.trailers {
		for _, value := range r.header[name] {
			to = appendField(to, strings.ToLower(name), value)
		}
	}
	for name, values := range r.header {
		if key, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			for _, value := range values {
				to = appendField(to, strings.ToLower(key), value)
			}
		}
	}
	return to
}
