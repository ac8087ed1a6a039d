package sealed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"clusterctl/daemons/store"
)

// watchEnder lets a reload end the watches that delivered values which could not be decrypted. Their readers then load
// everything again, with the new keys.
type watchEnder struct {
	mu           sync.Mutex
	hasMissed    bool
	reloadSignal chan struct{} // closed by a reload after a value could not be decrypted
	endsNext     bool          // reloadSignal was closed before there was a watch; the next watch ends at once
}

func (w *watchEnder) recordMissed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hasMissed = true
}

func (w *watchEnder) endSignal() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reloadSignal == nil {
		w.reloadSignal = make(chan struct{})
	}
	ends := w.reloadSignal
	if w.endsNext {
		w.reloadSignal, w.endsNext = nil, false
	}
	return ends
}

func (w *watchEnder) endWatches() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.hasMissed || w.endsNext:
	case w.reloadSignal != nil:
		close(w.reloadSignal)
		w.reloadSignal = nil
	default:
		w.reloadSignal, w.endsNext = make(chan struct{}), true
		close(w.reloadSignal)
	}
	w.hasMissed = false
}

// errNewKeys reports that there are new keys, which may decrypt values that could not be read before.
var errNewKeys = fmt.Errorf("there are other keys: %w", store.ErrCompacted)

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, take func(store.Batch) error) error {
	following, end := context.WithCancelCause(ctx)
	var attending sync.WaitGroup
	defer attending.Wait()
	defer end(nil)
	ending := s.watches.endSignal()
	attending.Go(func() {
		select {
		case <-ending:
			end(errNewKeys)
		case <-following.Done():
		}
	})
	err := s.Store.Watch(following, prefix, after, func(b store.Batch) error {
		b.Events = s.openAll(following, b.Events)
		return take(b)
	})
	if errors.Is(context.Cause(following), errNewKeys) {
		return fmt.Errorf("watch %s: %w", prefix, errNewKeys)
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
		events[i].Value, events[i].Err = s.openValue(ctx, events[i].Key, events[i].Value, events[i].Revision)
	}
	return events
}
