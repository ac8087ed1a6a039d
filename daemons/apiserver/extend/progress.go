package extend

import (
	"context"
	"sync"
)

// definitionProgress is the revision up to which CustomResourceDefinitions have been processed.
type definitionProgress struct {
	mu       sync.Mutex
	revision int64
	changed  chan struct{}
}

func (f *definitionProgress) advance(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision = revision
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// wait returns when that revision has been reached, or ctx ends.
func (f *definitionProgress) wait(ctx context.Context, revision int64) {
	for {
		f.mu.Lock()
		if f.revision >= revision {
			f.mu.Unlock()
			return
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
