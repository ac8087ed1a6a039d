package run

import (
	"sync"
	"sync/atomic"
)

// Rest is what is done when the process comes to rest, before memory is given back to the system: work that
// makes more of it free, and that is better not done while there is something else to do.
type Rest struct {
	// Most is the highest percentage by which the heap may grow between two collections of garbage; zero means 400.
	Most int

	mu  sync.Mutex
	all []func()

	dense atomic.Bool
}

// Dense has a large heap grow by less between two collections. It is for a process that reads much once and then holds
// it: what lives lies on fewer pages when less garbage came between, and reading costs a little more.
func (r *Rest) Dense() { r.dense.Store(true) }

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
