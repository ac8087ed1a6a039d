package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/request"
)

// This file has what the parts of the API server below this package ask of the server.

// streamServer implements stream.Server.
type streamServer struct{ s *Server }

// WaitForCurrent implements stream.Server.
func (d streamServer) WaitForCurrent(ctx context.Context) error {
	_, err := d.s.reads.WaitForVersion(ctx, "")
	return err
}

// AuthorizeCreate implements stream.Server.
func (d streamServer) AuthorizeCreate(q *request.Request) error { return d.s.authorizeCreate(q) }

// AdmitsConnect implements stream.Server.
func (d streamServer) AdmitsConnect() bool {
	return len(d.s.plugins.external.validators) > 0 || len(d.s.plugins.external.mutators) > 0
}

// AdmitConnect implements stream.Server.
func (d streamServer) AdmitConnect(q *request.Request, kind schema.GroupVersionKind, options runtime.Object) error {
	return d.s.admitSubresource(q, "CONNECT", kind, options, false)
}
