package run

import "sync"

// Rest is what is done when the process comes to rest, before memory is given back to the system: work that
// makes more of it free, and that is better not done while there is something else to do.
type Rest struct {
	mu  sync.Mutex
	all []func()
}

// Add adds f. It may be called whenever the process rests, by one goroutine at a time.
func (r *Rest) Add(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, f)
}

func (r *Rest) do() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.all {
		f()
	}
}
