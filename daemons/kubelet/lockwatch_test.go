package kubelet

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Repeated health checks do not add goroutines while the kubelet hangs.
func TestOneGoroutineWaitsForALockThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock, w := &countedLock{}, &lockWatch{}
		if !w.canLockWithin(lock, time.Second) {
			t.Error("a free lock is reported as held")
		}
		synctest.Wait()
		lock.Lock()
		var requested sync.WaitGroup
		for range 100 {
			requested.Go(func() {
				if w.canLockWithin(lock, time.Second) {
					t.Error("a held lock is reported as free")
				}
			})
		}
		requested.Wait()
		if n := lock.waiters(); n != 1 {
			t.Errorf("%d goroutines wait for the lock", n)
		}
		lock.Unlock()
		synctest.Wait()
		if !w.canLockWithin(lock, time.Second) {
			t.Error("a released lock is reported as held")
		}
	})
}

// countedLock counts the goroutines that wait for it.
type countedLock struct {
	mu      sync.Mutex
	held    bool
	waiting int
	free    sync.Cond
}

func (l *countedLock) Lock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free.L = &l.mu
	l.waiting++
	for l.held {
		l.free.Wait()
	}
	l.waiting--
	l.held = true
}

func (l *countedLock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	l.free.Broadcast()
}

func (l *countedLock) waiters() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}
