package run

import (
	"sync"
	"sync/atomic"
)

// Rest holds work to do when the process becomes idle, before memory is returned to the system. Such work frees more
// memory, and should not run while there is other work.
type Rest struct {
	// Most is the maximum percentage by which the heap may grow between two garbage collections. Zero means 400.
	Most int

	mu  sync.Mutex
	all []func()

	dense atomic.Bool
}

// Dense makes a large heap grow less between two collections. It is for a process that reads much once and then holds
// it. Long-lived data then occupies fewer pages, and reading costs a little more.
func (r *Rest) Dense() { r.dense.Store(true) }

// Add adds f. It is called whenever the process becomes idle, never concurrently.
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
