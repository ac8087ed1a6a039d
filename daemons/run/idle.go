package run

import (
	"sync"
	"sync/atomic"
)

// IdleTasks holds work to do when the process becomes idle, before memory is returned to the system. Such work frees
// more memory, and should not run while there is other work.
type IdleTasks struct {
	// MaxGrowthPercent is the maximum percentage by which the heap may grow between two garbage collections. Zero means
	// 400.
	MaxGrowthPercent int

	mu    sync.Mutex
	tasks []func()

	isDense atomic.Bool
}

// SetDense makes a large heap grow less between two collections. It is for a process that reads much once and then
// holds it. Long-lived data then occupies fewer pages, and reading costs a little more.
func (r *IdleTasks) SetDense() { r.isDense.Store(true) }

// Add adds f. It is called whenever the process becomes idle, never concurrently.
func (r *IdleTasks) Add(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks = append(r.tasks, f)
}

func (r *IdleTasks) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.tasks {
		f()
	}
}
