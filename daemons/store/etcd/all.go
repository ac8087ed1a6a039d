package etcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/store"
)

const (
	// stallTimeout is how long a member may send nothing while it is being read.
	stallTimeout = time.Minute
	// pageSize is how many keys are requested at once from a member without streams.
	pageSize = 2000
)

// All implements store.Store. etcd sends keys while it reads on. Members before 3.7 are asked page by page.
func (s *Store) All(ctx context.Context, prefix string, take func([]store.KeyValue) error) (int64, error) {
	at, err := s.members.active()
	if err != nil {
		return 0, fmt.Errorf("read all below %s: %w", prefix, err)
	}
	if err := s.history.recordIdentity(ctx, at); err != nil {
		return 0, fmt.Errorf("read all below %s: %w", prefix, storeError(err))
	}
	revision, err := at.readStream(ctx, prefix, take)
	if status.Code(err) == codes.Unimplemented {
		revision, err = at.readPages(ctx, prefix, take)
	}
	if err != nil {
		return 0, fmt.Errorf("read all below %s: %w", prefix, storeError(at.replaceError(err)))
	}
	return revision, nil
}

func (s *memberConn) readStream(requested context.Context, prefix string,
	take func([]store.KeyValue) error) (revision int64,
	err error) {
	ctx, cancel := context.WithCancelCause(requested)
	defer cancel(nil)
	watchdog := time.AfterFunc(stallTimeout, func() {
		cancel(fmt.Errorf("%w: it has said nothing for %s", store.ErrUnavailable, stallTimeout))
	})
	defer watchdog.Stop()
	stream, err := s.fastClient.StreamOnce(ctx, pb.KV_RangeStream_FullMethodName,
		&rangeRequest{key: prefix, end: clientv3.GetPrefixRangeEnd(prefix)})
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	var refused error // the error of take; the time that take needs does not count
	err = stream.Receive(ctx, func(message []byte, _ bool) error {
		watchdog.Stop()
		defer watchdog.Reset(stallTimeout)
		var r streamPart
		if err := r.Read(message); err != nil {
			return fmt.Errorf("read what is stored: %w", err)
		}
		if r.revision != 0 {
			revision = r.revision // only the last part has it
		}
		if len(r.kvs) > 0 {
			refused = take(r.kvs)
		}
		return refused
	})
	switch {
	case refused != nil:
		return 0, refused
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, clientv3.ContextError(ctx, err)
	case revision == 0:
		return 0, fmt.Errorf("%w: it has ended in the middle", store.ErrUnavailable)
	}
	return revision, nil
}

func (s *memberConn) readPages(ctx context.Context, prefix string, take func([]store.KeyValue) error) (revision int64,
	err error) {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for more := true; more; {
		call, cancel := context.WithTimeout(ctx, stallTimeout)
		r, err := s.etcdClient.Get(call, from, clientv3.WithRange(end), clientv3.WithRev(revision),
			clientv3.WithLimit(pageSize))
		cancel()
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = r.Header.Revision
		}
		kvs := make([]store.KeyValue, len(r.Kvs))
		for i, kv := range r.Kvs {
			kvs[i] = store.KeyValue{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision}
		}
		if more = r.More; len(kvs) > 0 {
			from = kvs[len(kvs)-1].Key + "\x00"
			if err := take(kvs); err != nil {
				return 0, err
			}
		}
	}
	return revision, nil
}

// Past implements store.Store.
func (s *Store) Past(ctx context.Context, prefix, after string, revision int64, limit int) ([]store.KeyValue,
	int64, error) {
	at, err := s.members.active()
	if err != nil {
		return nil, 0, fmt.Errorf("read what was below %s: %w", prefix, err)
	}
	from := prefix
	if after != "" {
		from = after + "\x00"
	}
	r, err := at.etcdClient.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)),
		clientv3.WithRev(revision), clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, 0, fmt.Errorf("read what was below %s: %w", prefix, storeError(at.replaceError(err)))
	}
	kvs := make([]store.KeyValue, len(r.Kvs))
	for i, kv := range r.Kvs {
		kvs[i] = store.KeyValue{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision}
	}
	return kvs, r.Count, nil
}
