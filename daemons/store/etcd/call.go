package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"clusterctl/daemons/store/etcd/unary"
)

// What single objects are read and written by goes over a connection for short calls; where that does not take it, over
// the client's, which waits for connections and has room for all sizes.

// commit makes a transaction, once.
func (s *seat) commit(ctx context.Context, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	r := &pb.TxnResponse{}
	err := s.short(ctx, pb.KV_Txn_FullMethodName, txn, r)
	if errors.Is(err, unary.ErrElsewhere) {
		r, err = s.kv.Txn(ctx, txn, callOptions...)
	}
	return r, clientv3.ContextError(ctx, err)
}

// read reads what is stored at a key now, or only that it could be read, and tries again for as long as the client does.
func (s *seat) read(ctx context.Context, key string, countOnly bool) (*pb.RangeResponse, error) {
	r := &pb.RangeResponse{}
	err := s.short(ctx, pb.KV_Range_FullMethodName, &pb.RangeRequest{Key: []byte(key), CountOnly: countOnly}, r)
	if !errors.Is(err, unary.ErrElsewhere) && status.Code(err) != codes.Unavailable {
		return r, clientv3.ContextError(ctx, err)
	}
	var options []clientv3.OpOption
	if countOnly {
		options = append(options, clientv3.WithCountOnly())
	}
	got, err := s.client.Get(ctx, key, options...)
	return (*pb.RangeResponse)(got), err
}

func (s *seat) short(ctx context.Context, method string, request, reply proto.Message) error {
	return attempt(ctx, method, request, reply, nil, s.invoke)
}

func (s *seat) invoke(ctx context.Context, method string, request, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	in, isMessage := request.(proto.Message)
	out, isToo := reply.(proto.Message)
	if !isMessage || !isToo {
		return fmt.Errorf("call %s: %T and %T are no messages", method, request, reply)
	}
	return s.calls.Invoke(ctx, method, in, out)
}
