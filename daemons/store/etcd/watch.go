package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"clusterctl/daemons/store"
)

// watching is the context value that makes all watches share one gRPC stream, so
// that a progress request reaches them whatever context it comes with.
var watching = clientv3.WithRequireLeader(context.Background())

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	out := make(chan store.Batch)
	go func() {
		defer close(out)
		s.follow(ctx, out, prefix, after)
	}()
	return out
}

func (s *Store) follow(asked context.Context, out chan<- store.Batch, prefix string, after int64) {
	at := s.members.current.Load()
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	defer context.AfterFunc(at.left, cancel)()
	// The client opens a stream for each set of outgoing metadata: RequireLeader ends
	// the watch when the member has lost its quorum, instead of letting it go stale.
	responses := at.client.Watch(clientv3.WithRequireLeader(ctx), prefix,
		clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithProgressNotify())
	for r := range responses {
		batch := store.Batch{Revision: r.Header.Revision}
		switch err := r.Err(); {
		case r.CompactRevision != 0:
			batch.Err = fmt.Errorf("watch %s after %d: %w", prefix, after, store.ErrCompacted)
		case err != nil:
			batch.Err = fmt.Errorf("watch %s: %w", prefix, known(at.fails(err)))
		}
		for _, e := range r.Events {
			event := store.Event{Key: string(e.Kv.Key), Value: e.Kv.Value, Revision: e.Kv.ModRevision}
			if e.Type == clientv3.EventTypeDelete {
				event.Value, event.Deleted = nil, true
			}
			batch.Events = append(batch.Events, event)
			// A response with events may come from the past (catching up): only the
			// events' own revision is reached.
			batch.Revision = event.Revision
		}
		select {
		case out <- batch:
		case <-asked.Done():
			return
		}
		if batch.Err != nil {
			return
		}
	}
	if asked.Err() == nil {
		err := errors.New("the store closed the watch")
		if at.left.Err() != nil {
			err = context.Cause(at.left)
		}
		select {
		case out <- store.Batch{Err: err}:
		case <-asked.Done():
		}
	}
}

// Progress implements store.Store.
func (s *Store) Progress(context.Context) error {
	if err := s.members.current.Load().client.RequestProgress(watching); err != nil {
		return fmt.Errorf("ask watches for their progress: %w", err)
	}
	return nil
}
