package apiserver

import (
	"net/http"
	"sync"
	"time"

	"clusterctl/daemons/apiserver/h2"
)

// pump sends what the watches of one connection have to say. An event that concerns all of them wakes one
// goroutine, is encoded once, and goes out in one piece.
type pump struct {
	flush func() error

	mu      sync.Mutex
	ready   []*watcher // those that have something to look at
	spare   []*watcher
	members int
	stop    chan struct{}
	done    chan struct{}

	wake chan struct{} // holds one

	last batch // belongs to the goroutine
}

// sink is where a watch's bytes go: onto a stream of HTTP/2, or by waiting.
type sink interface {
	// Offer takes as much as there is room for. When that is not everything, onRoom is called once there may be more.
	Offer(data []byte, onRoom func()) (int, error)
}

// pumpOf returns the pump of a watch's connection. What may have to wait, for the connection or for a webhook that
// converts, has one of its own.
func pumpOf(w *watcher) (*pump, sink) {
	if stream := h2.Of(w.q.w); stream != nil && !w.converts() {
		conn := stream.Conn()
		return conn.Share(func() any { return newPump(conn.Flush) }).(*pump), stream
	}
	return newPump(w.flush), waiting{w.q.w, w.control}
}

func newPump(flush func() error) *pump {
	return &pump{flush: flush, wake: make(chan struct{}, 1)}
}

// waiting is a connection that has one answer at a time: writing waits for the client.
type waiting struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Offer implements sink.
func (s waiting) Offer(data []byte, _ func()) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(stuckAfter)) // not every connection has deadlines
	return s.w.Write(data)
}

// join adds a watch; the goroutine runs while there are any.
func (p *pump) join() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members++; p.members == 1 {
		p.stop, p.done = make(chan struct{}), make(chan struct{})
		go p.run(p.stop, p.done)
	}
}

func (p *pump) leave() {
	p.mu.Lock()
	p.members--
	last, done := p.members == 0, p.done
	if last {
		close(p.stop)
	}
	p.mu.Unlock()
	if last {
		<-done
	}
}

// ring has a watch looked after.
func (p *pump) ring(w *watcher) {
	p.mu.Lock()
	if !w.queued {
		w.queued = true
		p.ready = append(p.ready, w)
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pump) run(stop, done chan struct{}) {
	defer close(done)
	for {
		select {
		case <-stop:
			return
		case <-p.wake:
		}
		p.round()
	}
}

// round looks after all watches that are ready, then sends.
func (p *pump) round() {
	p.mu.Lock()
	ready := p.ready
	p.ready, p.spare = p.spare[:0], nil
	for _, w := range ready {
		w.queued = false
	}
	p.mu.Unlock()
	for _, w := range ready {
		w.advance(&p.last)
	}
	p.last.rest()
	if err := p.flush(); err != nil {
		for _, w := range ready {
			w.finish()
		}
	}
	clear(ready)
	p.mu.Lock()
	p.spare = ready[:0]
	p.mu.Unlock()
}
