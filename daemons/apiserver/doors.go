package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
)

// doors is what the parts of the API server below this package ask of the server. It implements stream.Server,
// write.Server and upkeep.Server.
type doors struct{ s *Server }

// WaitForCurrent implements stream.Server.
func (d doors) WaitForCurrent(ctx context.Context) error {
	_, err := d.s.reads.WaitForVersion(ctx, "")
	return err
}

// AuthorizeCreate implements stream.Server.
func (d doors) AuthorizeCreate(q *request.Request) error {
	if q.Verb == "create" {
		return nil // authorized already
	}
	asked := q.Request
	asked.Verb = "create"
	return d.Authorize(q.HTTP.Context(), q.User, asked)
}

// AdmitsConnect implements stream.Server.
func (d doors) AdmitsConnect() bool { return d.s.writes.HasExternalPlugins() }

// AdmitConnect implements stream.Server.
func (d doors) AdmitConnect(q *request.Request, kind schema.GroupVersionKind, options runtime.Object) error {
	return d.s.writes.AdmitSubresource(q, "CONNECT", kind, options, false)
}

// Target implements write.Server and upkeep.Server.
func (d doors) Target(gvr schema.GroupVersionResource) request.Target {
	return d.s.serving.Load().Target(gvr)
}

// Resources implements write.Server.
func (d doors) Resources() map[schema.GroupVersionResource]wire.Served {
	return d.s.serving.Load().resources
}

// Authorize implements write.Server. Without authorizers everything is allowed.
func (d doors) Authorize(ctx context.Context, user api.User, r api.Request) error {
	if len(d.s.options.Authorizers) == 0 {
		return nil
	}
	return d.s.authorizeUser(ctx, user, r)
}
