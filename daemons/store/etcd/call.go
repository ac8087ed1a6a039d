package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/libraries"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd/rpc"
)

// Single objects are read and written over a connection for short calls (package rpc). If that does not accept a call,
// the etcd client makes it, which waits for connections and accepts all sizes.

// commit makes a transaction. It does not repeat one that may have been done. A write that the leader dropped was not
// done, and is repeated for a while: a leader drops writes while it hands over the leadership before it stops.
func (s *memberConn) commit(ctx context.Context, t *txn) (*txnReply, error) {
	for start := time.Now(); ; {
		r, err := s.commitOnce(ctx, t)
		if !isDropped(err) || time.Since(start) > handoverTimeout {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// handoverTimeout is how long a dropped write is repeated.
const handoverTimeout = 2 * time.Second

// isDropped reports whether the leader neither added a write to its log nor forwarded it.
func isDropped(err error) bool {
	return err != nil && strings.HasSuffix(status.Convert(err).Message(), "raft proposal dropped")
}

func (s *memberConn) commitOnce(ctx context.Context, t *txn) (*txnReply, error) {
	r := &txnReply{}
	err := s.callShort(ctx, pb.KV_Txn_FullMethodName, t, r)
	if errors.Is(err, rpc.ErrNotMade) {
		err = s.etcdClient.ActiveConnection().Invoke(ctx, pb.KV_Txn_FullMethodName, t, r, callOptions...)
	}
	return r, clientv3.ContextError(ctx, err)
}

// read reads the current value of a key. With countOnly it returns no value, and only shows that reading works. It
// retries as long as the client does.
func (s *memberConn) read(ctx context.Context, key string, countOnly bool) (*rangeReply, error) {
	r := &rangeReply{wantsIdentity: countOnly}
	err := s.callShort(ctx, pb.KV_Range_FullMethodName, &getRequest{key: key, countOnly: countOnly}, r)
	if !errors.Is(err, rpc.ErrNotMade) && status.Code(err) != codes.Unavailable {
		return r, clientv3.ContextError(ctx, err)
	}
	var options []clientv3.OpOption
	if countOnly {
		options = append(options, clientv3.WithCountOnly())
	}
	got, err := s.etcdClient.Get(ctx, key, options...)
	if err != nil {
		return nil, err
	}
	r = &rangeReply{revision: got.Header.Revision, identity: historyIdentity{got.Header.ClusterId, got.Header.RaftTerm}}
	if len(got.Kvs) > 0 {
		r.kv = &store.KeyValue{Key: key, Value: got.Kvs[0].Value, Revision: got.Kvs[0].ModRevision}
	}
	return r, nil
}

func (s *memberConn) callShort(ctx context.Context, method string, request rpc.Request, reply rpc.Reply) error {
	if libraries.Selected {
		return rpc.ErrNotMade
	}
	return asMemberDeadline(ctx, s.fastClient.Invoke(ctx, method, request, reply))
}

// messageCodec is a gRPC codec for messages that encode themselves.
type messageCodec struct{}

var _ encoding.CodecV2 = messageCodec{}

// Marshal implements encoding.CodecV2.
func (messageCodec) Marshal(v any) (mem.BufferSlice, error) {
	request, ok := v.(rpc.Request)
	if !ok {
		return nil, fmt.Errorf("send %T: it is not a request", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(request.Append(nil))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (messageCodec) Unmarshal(data mem.BufferSlice, v any) error {
	reply, ok := v.(rpc.Reply)
	if !ok {
		return fmt.Errorf("receive %T: it is not a reply", v)
	}
	return reply.Read(data.Materialize())
}

// Name implements encoding.CodecV2.
func (messageCodec) Name() string { return "proto" }

// callOptions are the options of calls that bypass the client's own operations. They equal the client's, except for the
// codec.
var callOptions = []grpc.CallOption{
	grpc.WaitForReady(true),
	grpc.MaxCallSendMsgSize(maxRequest),
	grpc.ForceCodecV2(messageCodec{}),
}
