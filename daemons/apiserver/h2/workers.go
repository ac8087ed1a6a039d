package h2

import "sync"

// workers are the goroutines that handlers run on. A new goroutine's stack has to grow, copied each
// time, through decoding, admission and encoding; a worker's stack has grown already.
// There are as many workers as requests in flight, and idleWorkers of them wait for the next one.
// What a long request keeps of a worker's stack without need, the garbage collector takes back.
type workers struct {
	work chan *stream
	idle chan struct{} // a token for each worker that waits
	stop chan struct{} // closed to end them

	mu    sync.Mutex
	ended bool
	all   sync.WaitGroup
}

const idleWorkers = 64

func (p *workers) init() {
	p.work, p.idle, p.stop = make(chan *stream), make(chan struct{}, idleWorkers), make(chan struct{})
}

// run has a worker answer a request.
func (p *workers) run(st *stream) {
	select {
	case p.work <- st:
		return
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended { // a connection that outlived its server; it is closed soon
		go st.answer()
		return
	}
	p.all.Go(func() { p.loop(st) })
}

func (p *workers) loop(st *stream) {
	for {
		st.answer()
		select {
		case p.idle <- struct{}{}:
		default:
			return // enough others wait
		}
		select {
		case st = <-p.work:
			<-p.idle
		case <-p.stop:
			return
		}
	}
}

// close ends the workers that wait.
func (p *workers) close() {
	p.mu.Lock()
	if !p.ended {
		p.ended = true
		close(p.stop)
	}
	p.mu.Unlock()
	p.all.Wait()
}
