package h2

import "sync"

// workerPool are the goroutines that run handlers. A new goroutine's stack has to grow, and is copied each time,
// through decoding, admission and encoding. A worker's stack has grown already. There are as many workers as requests
// in flight, and up to idleWorkers wait for the next one. The worker that has waited the least gets it. If a long
// request leaves much of a worker's stack unused, the garbage collector shrinks it.
type workerPool struct {
	mu       sync.Mutex
	idle     []chan *stream // of each idle worker; has a capacity of one
	isClosed bool
	all      sync.WaitGroup
}

const idleWorkers = 64

// run runs a stream's handler on a worker.
func (p *workerPool) run(st *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		p.idle[last] <- st // never blocks: each idle channel is used once
		p.idle = p.idle[:last]
		return
	}
	if p.isClosed { // the connection outlived its server, and is closed soon
		go st.runHandler()
		return
	}
	p.all.Go(func() { p.loop(st) })
}

func (p *workerPool) loop(st *stream) {
	work := make(chan *stream, 1)
	for ok := true; ok; st, ok = <-work {
		st.runHandler()
		if !p.park(work) {
			return
		}
	}
}

// park adds an idle worker. It returns false if the worker must end.
func (p *workerPool) park(work chan *stream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed || len(p.idle) == idleWorkers {
		return false
	}
	p.idle = append(p.idle, work)
	return true
}

// close ends the idle workers, and waits for the others.
func (p *workerPool) close() {
	p.mu.Lock()
	p.isClosed = true
	for _, work := range p.idle {
		close(work)
	}
	p.idle = nil
	p.mu.Unlock()
	p.all.Wait()
}
