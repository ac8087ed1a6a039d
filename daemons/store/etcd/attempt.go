package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// makeAttempt makes one attempt at a call, below the client's retries.
func makeAttempt(
	ctx context.Context,
	method string,
	req, reply any,
	cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	return memberError(asMemberDeadline(ctx, invoke(ctx, method, req, reply, cc, opts...)))
}

// memberError converts the error of a member that stops. Such a member may answer calls with an empty HTTP response,
// which gRPC reports as an unknown error. As Unavailable, the client repeats reads at another member, but no writes.
func memberError(err error) error {
	if s := status.Convert(err); s.Code() == codes.Unknown &&
		strings.Contains(s.Message(), "unexpected HTTP status code received from server: 200") {
		return status.Error(codes.Unavailable, "the member ends: "+s.Message())
	}
	return err
}

// asMemberDeadline marks a deadline that was the member's, not the caller's. A member without a leader lets a write
// wait for one, and then returns DeadlineExceeded. The client would take it for retryable and submit the write a
// hundred times. With this error, the caller learns of it instead.
func asMemberDeadline(ctx context.Context, err error) error {
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		return rpctypes.ErrGRPCTimeout
	}
	return err
}
