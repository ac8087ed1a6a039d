package h2

import (
	"context"
	"net/http"
	"runtime/debug"
	"time"
)

// Deferred is a response that may be written later, by any goroutine, so that no goroutine has to wait for it. It is an
// http.ResponseWriter that buffers its body until Send.
type Deferred struct {
	st   *stream
	code int
	body []byte
}

// Header implements http.ResponseWriter.
func (d *Deferred) Header() http.Header { return d.st.response.Header() }

// WriteHeader implements http.ResponseWriter.
func (d *Deferred) WriteHeader(code int) {
	if d.code == 0 {
		d.code = code
	}
}

// Write implements http.ResponseWriter.
func (d *Deferred) Write(p []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	d.body = append(d.body, p...)
	return len(p), nil
}

// Send ends the response. It never blocks: if the client does not accept all of it at once, another goroutine sends it.
// The buffered rest is sent by the next Flush.
func (d *Deferred) Send() {
	d.WriteHeader(http.StatusOK)
	st, c := d.st, d.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.endReason == nil && c.end.failed == nil {
		if !st.canSend(len(d.body)) {
			c.handlers.all.Go(d.sendAll)
			return
		}
		st.response.begin(d.code, d.body)
		if !st.response.isBodiless {
			st.buffer(d.body)
		}
		st.response.written = int64(len(d.body))
	}
	st.response.complete()
	c.endHandler()
}

// deferredTimeout is how long a client may take for a response that did not fit at once.
const deferredTimeout = time.Minute

func (d *Deferred) sendAll() {
	_ = d.st.response.SetWriteDeadline(time.Now().Add(deferredTimeout)) // cannot fail
	d.st.response.WriteHeader(d.code)
	_, _ = d.st.response.Write(d.body) // finish resets the stream of a truncated response
	d.st.response.finish()
	d.st.conn.mu.Lock()
	defer d.st.conn.mu.Unlock()
	d.st.conn.endHandler()
}

// Flush sends the connection's buffered responses. It does not block.
func (d *Deferred) Flush() {
	c := d.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end.failed == nil && !c.output.flushing && len(c.output.pending) > 0 {
		c.flushInBackground()
	}
}

// canSend reports whether n bytes can be sent without waiting. The caller holds c.mu.
func (st *stream) canSend(n int) bool {
	o := &st.conn.output
	return int64(n) <= min(st.window, o.window, int64(maxPending-len(o.pending)))
}

// endedContext is the context of requests that are offered to ServeFast. It has ended, so that waiting on it returns at
// once.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// canDefer reports whether a request is offered to ServeFast.
func (st *stream) canDefer() bool {
	return st.conn.s.ServeFast != nil && st.body.isComplete && st.req.Method == http.MethodGet &&
		st.response.errorStatus == 0
}

// serveOrBegin offers a request to ServeFast. If ServeFast does not take it, a handler begins. The caller holds c.mu,
// which is released during the call of ServeFast.
func (c *Conn) serveOrBegin(st *stream) error {
	if c.handlers.running >= maxStreams {
		return c.begin(st)
	}
	c.handlers.running++
	c.handlers.all.Add(1)
	c.mu.Unlock()
	taken := st.serveFast()
	c.mu.Lock()
	if taken {
		return nil
	}
	c.handlers.running--
	err := c.begin(st)
	c.handlers.all.Done()
	return err
}

func (st *stream) serveFast() (taken bool) {
	c := st.conn
	defer func() {
		if p := recover(); p != nil {
			c.s.Log.Error("a request could not be answered promptly", "path", st.req.URL.Path, "reason", p, "stack",
				string(debug.Stack()))
			taken = false
		}
	}()
	return c.s.ServeFast(&Deferred{st: st}, st.req)
}

// endHandler ends a handler, and begins a request that waits for one. The caller holds c.mu.
func (c *Conn) endHandler() {
	defer c.handlers.all.Done()
	c.handlers.running--
	for len(c.handlers.queued) > 0 && c.handlers.running < maxStreams {
		next := c.handlers.queued[0]
		c.handlers.queued = c.handlers.queued[1:]
		if next.endReason != nil {
			next.cancel()
			c.streams.uncountHeaders(next)
			continue
		}
		c.handlers.running++
		c.handlers.all.Add(1)
		c.s.workers.run(next)
	}
}
