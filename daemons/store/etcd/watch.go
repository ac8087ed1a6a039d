package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"clusterctl/daemons/store"
)

// Watch implements store.Store. What the store sends is handed on by the goroutine that receives it; the
// client's own watches would pass it through three more first.
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
	w, err := at.open(ctx, prefix, after)
	if err == nil {
		defer at.shut(w)
	}
	for err == nil {
		var batch store.Batch
		var more bool
		batch, more, err = w.next()
		if err != nil || !more {
			continue
		}
		select {
		case out <- batch:
		case <-asked.Done():
			return
		}
	}
	if asked.Err() != nil {
		return
	}
	if at.left.Err() != nil {
		err = context.Cause(at.left)
	}
	select {
	case out <- store.Batch{Err: fmt.Errorf("watch %s after %d: %w", prefix, after, known(err))}:
	case <-asked.Done():
	}
}

// stream is one watch.
type stream struct {
	grpc pb.Watch_WatchClient
	mu   sync.Mutex // one sender at a time
}

func (w *stream) send(r *pb.WatchRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grpc.Send(r)
}

// open begins a watch.
func (s *seat) open(ctx context.Context, prefix string, after int64) (*stream, error) {
	// The member ends it when it has lost its leader, instead of letting it go stale.
	g, err := s.watch.Watch(clientv3.WithRequireLeader(ctx), callOptions...)
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	w := &stream{grpc: g}
	err = w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), StartRevision: after + 1, ProgressNotify: true,
	}}})
	if err != nil {
		// Why it was ended is told to who receives.
		if _, cause := g.Recv(); cause != nil {
			err = cause
		}
		return nil, clientv3.ContextError(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[w] = struct{}{}
	return w, nil
}

func (s *seat) shut(w *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, w)
}

// next receives what the store says next; false if that is nothing to hand on.
func (w *stream) next() (batch store.Batch, ok bool, err error) {
	r, err := w.grpc.Recv()
	if err != nil {
		return batch, false, clientv3.ContextError(w.grpc.Context(), err)
	}
	switch {
	case r.CompactRevision != 0:
		return batch, false, store.ErrCompacted
	case r.Canceled:
		if r.CancelReason == "" {
			return batch, false, errors.New("the store has ended it")
		}
		return batch, false, rpctypes.Error(errors.New(r.CancelReason))
	case r.Created:
		// Its revision is the store's, and not how far this has come.
		return batch, false, nil
	}
	batch.Revision = r.Header.GetRevision()
	if len(r.Events) > 0 {
		batch.Events = make([]store.Event, len(r.Events))
	}
	for i, e := range r.Events {
		event := store.Event{Key: string(e.Kv.Key), Value: e.Kv.Value, Revision: e.Kv.ModRevision}
		if e.Type == mvccpb.Event_DELETE {
			event.Value, event.Deleted = nil, true
		}
		batch.Events[i] = event
		// A response with events may come from the past (catching up): only the
		// events' own revision is reached.
		batch.Revision = event.Revision
	}
	return batch, true, nil
}

// Progress implements store.Store. A watch that cannot be asked has ended, and says so itself.
func (s *Store) Progress(context.Context) error {
	at := s.members.current.Load()
	at.mu.Lock()
	open := slices.Collect(maps.Keys(at.streams))
	at.mu.Unlock()
	for _, w := range open {
		_ = w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
	return nil
}
