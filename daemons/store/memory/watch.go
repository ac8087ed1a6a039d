package memory

import (
	"context"
	"strings"

	"clusterctl/daemons/store"
)

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	out := make(chan store.Batch)
	go func() {
		defer close(out)
		s.follow(ctx, out, prefix, after)
	}()
	return out
}

func (s *Store) follow(ctx context.Context, out chan<- store.Batch, prefix string, after int64) {
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	for {
		s.mu.Lock()
		if after < s.compacted {
			s.mu.Unlock()
			send(ctx, out, store.Batch{Err: store.ErrCompacted})
			return
		}
		var moments []moment
		if after < s.revision {
			moments = s.history[after-s.compacted:]
		}
		changed, told := s.changed, s.asked != asked
		batch := store.Batch{Revision: max(after, s.revision)}
		asked = s.asked
		s.mu.Unlock()
		for _, m := range moments {
			for _, e := range m.events {
				if strings.HasPrefix(e.Key, prefix) {
					batch.Events = append(batch.Events, e)
				}
			}
		}
		if len(batch.Events) > 0 || told {
			if !send(ctx, out, batch) {
				return
			}
		}
		after = batch.Revision
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Progress implements store.Store.
func (s *Store) Progress(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	close(s.changed)
	s.changed = make(chan struct{})
	return ctx.Err()
}

func send(ctx context.Context, out chan<- store.Batch, b store.Batch) bool {
	select {
	case out <- b:
		return true
	case <-ctx.Done():
		return false
	}
}
