package ledger

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// A caller that has changed something waits for a write that began afterwards, regardless of the number of other
// callers.
func TestWritesIncludeAllEarlierChanges(t *testing.T) {
	var s saveQueue
	var mu sync.Mutex
	changed, writes := 0, 0
	written := 0 // number of written changes
	release, under := make(chan struct{}), make(chan struct{})
	write := func() error {
		mu.Lock()
		writes++
		first, hasChanges := writes == 1, changed
		mu.Unlock()
		if first {
			close(under)
			<-release
		}
		mu.Lock()
		written = hasChanges
		mu.Unlock()
		return nil
	}
	change := func() int {
		mu.Lock()
		defer mu.Unlock()
		changed++
		return changed
	}
	var all sync.WaitGroup
	all.Go(func() {
		change()
		if err := s.join(write); err != nil {
			t.Error(err)
		}
	})
	<-under
	var started, ended atomic.Int32
	for range 100 {
		all.Go(func() {
			own := change()
			started.Add(1)
			if err := s.join(write); err != nil {
				t.Error(err)
			}
			ended.Add(1)
			mu.Lock()
			defer mu.Unlock()
			if written < own {
				t.Errorf("answered when %d changes were written, and this is the %dth", written, own)
			}
		})
	}
	for started.Load() < 100 {
		if n := ended.Load(); n > 0 {
			t.Fatalf("%d were answered before anything was written", n)
		}
	}
	close(release)
	all.Wait()
	if writes > 100 {
		t.Errorf("%d writes for 101 changes", writes)
	}
}

func TestFailedWritesFailForAllTheirChanges(t *testing.T) {
	var s saveQueue
	full := errors.New("no space left")
	if err := s.join(func() error { return full }); !errors.Is(err, full) {
		t.Error(err)
	}
	if err := s.join(func() error { return nil }); err != nil {
		t.Errorf("the next one: %v", err)
	}
}
