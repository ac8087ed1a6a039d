package sealed

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"clusterctl/daemons/store"
)

// watches lets a reload end the watches that gave out what could not be decrypted: who
// follows them loads anew, and then has it.
type watches struct {
	mu      sync.Mutex
	missing bool
	again   chan struct{} // closed by a reload after something was missed
	late    bool          // it was closed before anybody followed: the next to come ends at once
}

func (w *watches) missed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing = true
}

func (w *watches) ending() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again == nil {
		w.again = make(chan struct{})
	}
	ends := w.again
	if w.late {
		w.again, w.late = nil, false
	}
	return ends
}

func (w *watches) reloaded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.missing || w.late:
	case w.again != nil:
		close(w.again)
		w.again = nil
	default:
		w.again, w.late = make(chan struct{}), true
		close(w.again)
	}
	w.missing = false
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	out := make(chan store.Batch)
	ctx, cancel := context.WithCancel(ctx)
	in, ending := s.Store.Watch(ctx, prefix, after), s.watches.ending()
	go func() {
		defer close(out)
		defer cancel()
		for {
			var batch store.Batch
			var ok bool
			select {
			case batch, ok = <-in:
			case <-ending:
				batch, ok = store.Batch{Err: fmt.Errorf("watch %s: there are other keys: %w", prefix, store.ErrCompacted)}, true
			}
			if !ok {
				return
			}
			batch.Events = s.openAll(ctx, batch.Events)
			select {
			case out <- batch:
			case <-ctx.Done():
				return
			}
			if batch.Err != nil {
				return
			}
		}
	}()
	return out
}

// openAll decrypts what events hold. What others may hold as well is copied first.
func (s *Store) openAll(ctx context.Context, events []store.Event) []store.Event {
	if !slices.ContainsFunc(events, func(e store.Event) bool { return isSealed(e.Value) }) {
		return events
	}
	events = slices.Clone(events)
	for i := range events {
		events[i].Value, events[i].Err = s.open(ctx, events[i].Key, events[i].Value)
	}
	return events
}
