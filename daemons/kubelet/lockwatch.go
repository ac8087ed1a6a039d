package kubelet

import (
	"fmt"
	"sync"
	"time"
)

// lockTimeout is how long the kubelet's list of pods may stay locked before the kubelet counts as hanging.
const lockTimeout = 5 * time.Second

// lockWatch detects a lock that is held for too long. Concurrent callers share one goroutine that waits for the lock.
type lockWatch struct {
	mu      sync.Mutex
	waiting chan struct{} // closed when the lock was acquired; nil when no goroutine waits
}

// canLockWithin reports whether the lock can be acquired within d.
func (w *lockWatch) canLockWithin(lock sync.Locker, d time.Duration) bool {
	w.mu.Lock()
	before := w.waiting
	if before == nil {
		before = make(chan struct{})
		w.waiting = before
		go func() {
			lock.Lock()
			//lint:ignore SA2001 Acquiring the lock is the whole check.
			lock.Unlock()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.waiting = nil
			close(before)
		}()
	}
	w.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-before:
		return true
	case <-timer.C:
		return false
	}
}

// checkProgress returns an error if the kubelet hangs. It checks the lock on the list of pods, which all work on pods
// needs.
func (p *podWorkers) checkProgress() error {
	if !p.lock.canLockWithin(&p.mu, lockTimeout) {
		return fmt.Errorf("the list of pods has been locked for %s", lockTimeout)
	}
	return nil
}
