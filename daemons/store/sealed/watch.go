package sealed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"clusterctl/daemons/store"
)

// watches lets a reload end the watches that delivered values which could not be decrypted. Their readers then load
// everything again, with the new keys.
type watches struct {
	mu      sync.Mutex
	missing bool
	again   chan struct{} // closed by a reload after a value could not be decrypted
	late    bool          // whether again was closed before there was a watch; the next watch ends at once
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

// errKeys reports that there are new keys, which may decrypt values that could not be read before.
var errKeys = fmt.Errorf("there are other keys: %w", store.ErrCompacted)

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, take func(store.Batch) error) error {
	following, end := context.WithCancelCause(ctx)
	var attending sync.WaitGroup
	defer attending.Wait()
	defer end(nil)
	ending := s.watches.ending()
	attending.Go(func() {
		select {
		case <-ending:
			end(errKeys)
		case <-following.Done():
		}
	})
	err := s.Store.Watch(following, prefix, after, func(b store.Batch) error {
		b.Events = s.openAll(following, b.Events)
		return take(b)
	})
	if errors.Is(context.Cause(following), errKeys) {
		return fmt.Errorf("watch %s: %w", prefix, errKeys)
	}
	return err
}

// openAll decrypts the values of events. It copies the events first, because they may be shared.
func (s *Store) openAll(ctx context.Context, events []store.Event) []store.Event {
	if !slices.ContainsFunc(events, func(e store.Event) bool { return isSealed(e.Value) }) {
		return events
	}
	events = slices.Clone(events)
	for i := range events {
		events[i].Value, events[i].Err = s.open(ctx, events[i].Key, events[i].Value, events[i].Revision)
	}
	return events
}
