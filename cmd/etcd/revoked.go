package main

import (
	"context"
	"crypto/x509"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/run"
)

// revokedRequests refuses requests of clients whose certificate is revoked. etcd itself checks its revocation list only
// when a connection is made, and connections may be as old as their clients. revokedStreams also ends open watches and
// other streams.

func revokedRequests(revoked *run.Revoked) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if cert := clientCertificate(ctx); cert != nil {
			if err := revoked.Check(cert); err != nil {
				return nil, status.Error(codes.Unauthenticated, err.Error())
			}
		}
		return handler(ctx, request)
	}
}

func revokedStreams(revoked *run.Revoked) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		cert := clientCertificate(stream.Context())
		if cert == nil {
			return handler(server, stream)
		}
		if err := revoked.Check(cert); err != nil {
			return status.Error(codes.Unauthenticated, err.Error())
		}
		ctx, stop := revoked.ContextFor(stream.Context(), cert)
		defer stop()
		err := handler(server, &validStream{stream, ctx})
		if ctx.Err() != nil && stream.Context().Err() == nil {
			return status.Error(codes.Unauthenticated, context.Cause(ctx).Error())
		}
		return err
	}
}

// validStream is a stream that ends with its context, possibly before the client disconnects.
type validStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *validStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *validStream) SendMsg(m any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream.
func (s *validStream) RecvMsg(m any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return s.ServerStream.RecvMsg(m)
}

// clientCertificate returns the client's certificate, or nil without TLS.
func clientCertificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	return info.State.PeerCertificates[0]
}
