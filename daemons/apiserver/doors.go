package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/aggregate"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// doors is what the parts of the API server below this package ask of the server. It implements the Server
// interfaces of stream, write, upkeep, extend and aggregate.
type doors struct{ s *Server }

// WaitForCurrent implements stream.Server.
func (d doors) WaitForCurrent(ctx context.Context) error {
	_, err := d.s.resources.reads.WaitForVersion(ctx, "")
	return err
}

// AuthorizeCreate implements stream.Server.
func (d doors) AuthorizeCreate(q *request.Request) error {
	if q.Verb == "create" {
		return nil // authorized already
	}
	attributes := q.Request
	attributes.Verb = "create"
	return d.Authorize(q.HTTP.Context(), q.User, attributes)
}

// AdmitsConnect implements stream.Server.
func (d doors) AdmitsConnect() bool { return d.s.resources.writes.Admitter().HasExternalPlugins() }

// AdmitConnect implements stream.Server.
func (d doors) AdmitConnect(q *request.Request, kind schema.GroupVersionKind, options runtime.Object) error {
	return d.s.resources.writes.Admitter().AdmitSubresource(q, "CONNECT", kind, options, false)
}

// Target implements write.Server, upkeep.Server and aggregate.Server.
func (d doors) Target(gvr schema.GroupVersionResource) request.Target {
	return d.s.kinds.load().Target(gvr)
}

// Resources implements write.Server.
func (d doors) Resources() map[schema.GroupVersionResource]wire.Served {
	return d.s.kinds.load().resources
}

// Authorize implements write.Server. Without authorizers everything is allowed.
func (d doors) Authorize(ctx context.Context, user api.User, r api.Request) error {
	if len(d.s.options.Access.Authorizers) == 0 {
		return nil
	}
	return d.s.identity.AuthorizeUser(ctx, user, r)
}

// ServeKinds implements extend.Server.
func (d doors) ServeKinds(declared []*kinds.Kind) { d.s.kinds.serveDeclared(declared) }

// CheckStore implements extend.Server.
func (d doors) CheckStore() error { return d.s.background.upkeep.CheckStore() }

// ServeAggregated implements aggregate.Server.
func (d doors) ServeAggregated(all map[schema.GroupVersion]*aggregate.Version) {
	d.s.kinds.serveAggregated(all)
}

// AggregatedVersions implements aggregate.Server.
func (d doors) AggregatedVersions() map[schema.GroupVersion]*aggregate.Version {
	return d.s.kinds.load().aggregated
}
