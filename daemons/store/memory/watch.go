package memory

import (
	"context"
	"strings"

	"clusterctl/daemons/store"
)

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, take func(store.Batch) error) error {
	s.mu.Lock()
	requests := s.progressRequests
	s.mu.Unlock()
	for {
		s.mu.Lock()
		if after < s.compacted {
			s.mu.Unlock()
			return store.ErrCompacted
		}
		var moments []revisionChanges
		if after < s.revision {
			moments = s.history[after-s.compacted:]
		}
		changed, requested := s.changed, s.progressRequests != requests
		batch := store.Batch{Revision: max(after, s.revision)}
		requests = s.progressRequests
		s.mu.Unlock()
		for _, m := range moments {
			for _, e := range m.events {
				if strings.HasPrefix(e.Key, prefix) {
					batch.Events = append(batch.Events, e)
				}
			}
		}
		if len(batch.Events) > 0 || requested {
			if err := take(batch); err != nil {
				return err
			}
		}
		after = batch.Revision
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Progress implements store.Store.
func (s *Store) Progress(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progressRequests++
	close(s.changed)
	s.changed = make(chan struct{})
	return ctx.Err()
}
