package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd/rpc"
)

// Watch implements store.Store. The watching goroutine reads and passes on the store's messages itself. The client's
// own watches would copy each message and pass it through four more goroutines.
func (s *Store) Watch(requested context.Context, prefix string, after int64, take func(store.Batch) error) error {
	at := s.members.current.Load()
	if err := s.history.checkIdentity(requested, at); err != nil {
		return fmt.Errorf("watch %s after %d: %w", prefix, after, storeError(err))
	}
	ctx, cancel := context.WithCancel(requested)
	defer cancel()
	defer context.AfterFunc(at.replacedContext, cancel)()
	var refused error // the error of take
	err := at.watchOnce(ctx, prefix, after, func(b store.Batch) error {
		refused = take(b)
		return refused
	})
	switch {
	case refused != nil:
		return refused
	case requested.Err() != nil:
		return requested.Err()
	case at.replacedContext.Err() != nil:
		err = context.Cause(at.replacedContext)
	}
	return fmt.Errorf("watch %s after %d: %w", prefix, after, storeError(clientv3.ContextError(ctx, err)))
}

// requireLeader makes the member end a watch when it has lost its leader, instead of letting the watch become stale.
var requireLeader = []rpc.Header{{Name: rpctypes.MetadataRequireLeaderKey, Value: rpctypes.MetadataHasLeader}}

func (s *memberConn) watchOnce(ctx context.Context, prefix string, after int64, take func(store.Batch) error) error {
	w, err := s.fastClient.Stream(ctx, pb.Watch_Watch_FullMethodName, requireLeader,
		&watchRequest{key: prefix, end: clientv3.GetPrefixRangeEnd(prefix), start: after + 1})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.watches[w] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, w)
	}()
	var r watchReply
	var batch store.Batch // all events that have arrived so far
	isCreated, notified := false, false
	err = w.Receive(ctx, func(message []byte, more bool) error {
		r = watchReply{events: batch.Events}
		if err := r.Read(message); err != nil {
			return fmt.Errorf("read what is watched: %w", err)
		}
		switch {
		case r.compacted != 0:
			return store.ErrCompacted
		case r.canceled && r.reason == "":
			return errEnded
		case r.canceled:
			return rpctypes.Error(errors.New(r.reason))
		}
		switch events := len(r.events) - len(batch.Events); {
		case events > 0:
			// Old events may follow each other while the watch catches up, so only their own revision has been reached.
			batch.Revision, notified = r.events[len(r.events)-1].Revision, true
		case r.created: // the message has the store's revision, not the watch's progress
			isCreated = true
		case isCreated:
			// Before, etcd may already report progress, but it holds events back until it has sent the created message.
			batch.Revision, notified = r.revision, true
		}
		batch.Events = r.events
		if more || !notified {
			return nil
		}
		whole := batch
		batch, notified = store.Batch{Events: batch.Events[:0]}, false
		return take(whole)
	})
	return cmp.Or(err, errEnded)
}

var errEnded = status.Error(codes.Unavailable, "the store has ended the watch")

// Progress implements store.Store. It ignores errors, because a watch that cannot be asked has ended and reports that
// itself.
func (s *Store) Progress(context.Context) error {
	at := s.members.current.Load()
	at.mu.Lock()
	open := slices.Collect(maps.Keys(at.watches))
	at.mu.Unlock()
	for _, w := range open {
		_ = w.Send(progressRequest{})
	}
	return nil
}
