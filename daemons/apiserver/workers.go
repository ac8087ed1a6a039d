package apiserver

import (
	"net/http"
	"sync"
)

// workers answer writes. HTTP/2 gives every request a new goroutine, whose stack has to
// grow, copied each time, through decoding, admission and encoding; a worker's stack has grown
// already. Reads go without: their stacks stay flat, and a watch would keep a worker for as
// long as it lasts. There are as many workers as writes in flight, and idleWorkers of them
// wait for the next one.
type workers struct {
	work chan task
	idle chan struct{} // a token for each worker that waits
	stop chan struct{} // closed to end them

	mu    sync.Mutex
	ended bool
	all   sync.WaitGroup
}

const idleWorkers = 64

type task struct {
	h    http.Handler
	w    http.ResponseWriter
	r    *http.Request
	done chan any // what the handler panicked with, or nil
}

func newWorkers() *workers {
	return &workers{work: make(chan task), idle: make(chan struct{}, idleWorkers), stop: make(chan struct{})}
}

// close ends the workers. A request that comes yet is answered without them.
func (p *workers) close() {
	p.mu.Lock()
	if !p.ended {
		p.ended = true
		close(p.stop)
	}
	p.mu.Unlock()
	p.all.Wait()
}

// start has a new worker answer a task, unless they have ended.
func (p *workers) start(t task) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.all.Go(func() { p.loop(t) })
	}
	return !p.ended
}

// serve has a worker answer a write and waits for it. What the handler panics with goes on
// here, where the HTTP server expects it.
func (p *workers) serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor < 2 || r.Method == http.MethodGet { // a connection's goroutine of HTTP/1 is a worker already
		h.ServeHTTP(w, r)
		return
	}
	t := task{h, w, r, make(chan any, 1)}
	select {
	case p.work <- t:
	default:
		if !p.start(t) {
			h.ServeHTTP(w, r)
			return
		}
	}
	if reason := <-t.done; reason != nil {
		panic(reason)
	}
}

func (p *workers) loop(t task) {
	for {
		t.answer()
		select {
		case p.idle <- struct{}{}:
		default:
			return // enough others wait
		}
		select {
		case t = <-p.work:
			<-p.idle
		case <-p.stop:
			return
		}
	}
}

func (t task) answer() {
	defer func() { t.done <- recover() }()
	t.h.ServeHTTP(t.w, t.r)
}
