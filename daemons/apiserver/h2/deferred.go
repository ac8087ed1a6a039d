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
func (d *Deferred) Header() http.Header { return d.st.res.Header() }

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
	st, c := d.st, d.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.gone == nil && c.failed == nil {
		if !st.fits(len(d.body)) {
			c.running.Go(d.sendAll)
			return
		}
		st.res.begin(d.code, d.body)
		if !st.res.bare {
			st.take(d.body)
		}
		st.res.written = int64(len(d.body))
	}
	st.res.complete()
	c.over()
}

// taking is how long a client may take for a response that did not fit at once.
const taking = time.Minute

func (d *Deferred) sendAll() {
	_ = d.st.res.SetWriteDeadline(time.Now().Add(taking)) // cannot fail
	d.st.res.WriteHeader(d.code)
	_, _ = d.st.res.Write(d.body) // finish resets the stream of a truncated response
	d.st.res.finish()
	d.st.c.mu.Lock()
	defer d.st.c.mu.Unlock()
	d.st.c.over()
}

// Flush sends the connection's buffered responses. It does not block.
func (d *Deferred) Flush() {
	c := d.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil && !c.out.flushing && len(c.out.buf) > 0 {
		c.flushAside()
	}
}

// fits reports whether n bytes can be sent without waiting. The caller holds c.mu.
func (st *stream) fits(n int) bool {
	o := &st.c.out
	return int64(n) <= min(st.window, o.window, int64(mostPending-len(o.buf)))
}

// ended is the context of requests that are offered to Prompt. It has ended, so that waiting on it returns at once.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// mayDefer reports whether a request is offered to Prompt.
func (st *stream) mayDefer() bool {
	return st.c.s.Prompt != nil && st.body.ended && st.req.Method == http.MethodGet && st.res.instead == 0
}

// offer offers a request to Prompt. If Prompt does not take it, a handler begins. The caller holds c.mu; offer releases
// it meanwhile.
func (c *Conn) offer(st *stream) error {
	if c.busy >= maxStreams {
		return c.begin(st)
	}
	c.busy++
	c.running.Add(1)
	c.mu.Unlock()
	taken := c.prompt(st)
	c.mu.Lock()
	if taken {
		return nil
	}
	c.busy--
	err := c.begin(st)
	c.running.Done()
	return err
}

func (c *Conn) prompt(st *stream) (taken bool) {
	defer func() {
		if p := recover(); p != nil {
			c.s.Log.Error(
				"a request could not be answered promptly",
				"path",
				st.req.URL.Path,
				"reason",
				p,
				"stack",
				string(debug.Stack()),
			)
			taken = false
		}
	}()
	return c.s.Prompt(&Deferred{st: st}, st.req)
}

// over ends a handler, and begins a request that waits for one. The caller holds c.mu.
func (c *Conn) over() {
	defer c.running.Done()
	c.busy--
	for len(c.waiting) > 0 && c.busy < maxStreams {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		if next.gone != nil {
			next.cancel()
			c.forgo(next)
			continue
		}
		c.busy++
		c.running.Add(1)
		c.s.workers.run(next)
	}
}
