package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// attempt is one attempt at a call of the client's, below its own repeating.
func attempt(
	ctx context.Context,
	method string,
	req, reply any,
	cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	return ended(ownDeadline(ctx, invoke(ctx, method, req, reply, cc, opts...)))
}

// ended tells a member that ends. As its last word it may answer calls with an empty page, which gRPC does not know how
// to take. The client then reads again elsewhere, and makes no write twice.
func ended(err error) error {
	if s := status.Convert(err); s.Code() == codes.Unknown &&
		strings.Contains(s.Message(), "unexpected HTTP status code received from server: 200") {
		return status.Error(codes.Unavailable, "the member ends: "+s.Message())
	}
	return err
}

// ownDeadline tells deadlines apart. A member without a leader lets a write wait for one and then says that the
// deadline is exceeded: its own, not the caller's. The client cannot tell and would hand the write in again and again,
// a hundred times, where whoever waits for it should be told.
func ownDeadline(ctx context.Context, err error) error {
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		return rpctypes.ErrGRPCTimeout
	}
	return err
}
