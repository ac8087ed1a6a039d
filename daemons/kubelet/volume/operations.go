package volume

import (
	"slices"
	"sync"
	"time"
)

// runningOperations tracks the volume operations of pods in progress. While a disk or a file server hangs, the kernel
// does not return from a call. The caller cannot be stopped, so such operations can only be reported.
type runningOperations struct {
	mu    sync.Mutex
	byPod map[string]map[*operation]bool // by pod UID
}

type operation struct {
	description string
	start       time.Time
}

// begin records that an operation on a pod's volumes is running until the returned function is called.
func (o *runningOperations) begin(uid, what string) (end func()) {
	one := &operation{what, time.Now()}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byPod == nil {
		o.byPod = map[string]map[*operation]bool{}
	}
	if o.byPod[uid] == nil {
		o.byPod[uid] = map[*operation]bool{}
	}
	o.byPod[uid][one] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if delete(o.byPod[uid], one); len(o.byPod[uid]) == 0 {
			delete(o.byPod, uid)
		}
	}
}

// Hanging returns the operations on a pod's volumes that have been running for at least the given time, sorted.
func (m *Manager) Hanging(uid string, longer time.Duration) (list []string) {
	m.operations.mu.Lock()
	defer m.operations.mu.Unlock()
	for one := range m.operations.byPod[uid] {
		if time.Since(one.start) >= longer {
			list = append(list, one.description)
		}
	}
	slices.Sort(list)
	return list
}
