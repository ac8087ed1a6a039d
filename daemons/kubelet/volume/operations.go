package volume

import (
	"slices"
	"sync"
	"time"
)

// operations tracks the volume operations of pods in progress. While a disk or a file server hangs, the kernel does not
// return from a call. The caller cannot be stopped, so such operations can only be reported.
type operations struct {
	mu    sync.Mutex
	going map[string]map[*operation]bool // by pod UID
}

type operation struct {
	what  string
	began time.Time
}

// begin records that an operation on a pod's volumes is running until the returned function is called.
func (o *operations) begin(uid, what string) (end func()) {
	one := &operation{what, time.Now()}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.going == nil {
		o.going = map[string]map[*operation]bool{}
	}
	if o.going[uid] == nil {
		o.going[uid] = map[*operation]bool{}
	}
	o.going[uid][one] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if delete(o.going[uid], one); len(o.going[uid]) == 0 {
			delete(o.going, uid)
		}
	}
}

// Hanging returns the operations on a pod's volumes that have been running for at least the given time, sorted.
func (m *Manager) Hanging(uid string, longer time.Duration) (list []string) {
	m.going.mu.Lock()
	defer m.going.mu.Unlock()
	for one := range m.going.going[uid] {
		if time.Since(one.began) >= longer {
			list = append(list, one.what)
		}
	}
	slices.Sort(list)
	return list
}
