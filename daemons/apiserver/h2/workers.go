package h2

import "sync"

// workers are the goroutines that handlers run on. A new goroutine's stack has to grow, copied each
// time, through decoding, admission and encoding; a worker's stack has grown already.
// There are as many workers as requests in flight, and idleWorkers of them wait for the next one, which
// the one that has waited least gets.
// What a long request keeps of a worker's stack without need, the garbage collector takes back.
type workers struct {
	mu    sync.Mutex
	idle  []chan *stream // of each worker that waits; holds one
	ended bool
	all   sync.WaitGroup
}

const idleWorkers = 64

// run has a worker answer a request.
func (p *workers) run(st *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		p.idle[last] <- st // has room: nobody else knows of it any more
		p.idle = p.idle[:last]
		return
	}
	if p.ended { // a connection that outlived its server; it is closed soon
		go st.answer()
		return
	}
	p.all.Go(func() { p.loop(st) })
}

func (p *workers) loop(st *stream) {
	work := make(chan *stream, 1)
	for ok := true; ok; st, ok = <-work {
		st.answer()
		if !p.rest(work) {
			return
		}
	}
}

// rest says that a worker waits for work; false if it should not.
func (p *workers) rest(work chan *stream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || len(p.idle) == idleWorkers {
		return false
	}
	p.idle = append(p.idle, work)
	return true
}

// close ends the workers that wait.
func (p *workers) close() {
	p.mu.Lock()
	p.ended = true
	for _, work := range p.idle {
		close(work)
	}
	p.idle = nil
	p.mu.Unlock()
	p.all.Wait()
}
