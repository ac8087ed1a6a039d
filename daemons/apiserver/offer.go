package apiserver

import (
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/discovery"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// offer is what is served at one time. It never changes: when kinds come or go, it
// is replaced as a whole.
type offer struct {
	resources map[schema.GroupVersionResource]wire.Served
	discovery http.Handler
	openapi   http.Handler
}

// serveKinds serves declared kinds, in all versions, besides those that are always there.
func (s *Server) serveKinds(more []*kinds.Kind) {
	var declared []*kinds.Kind
	for _, k := range more {
		declared = append(declared, k.Untyped.Family.Served...)
	}
	all := slices.Concat(s.o.Kinds, declared)
	next := &offer{resources: map[schema.GroupVersionResource]wire.Served{}, discovery: discovery.New(all), openapi: s.described}
	for _, k := range all {
		hub := wire.Served{Kind: k}
		next.resources[hub.Name()] = hub
		for i := range k.Aliases {
			alias := wire.Served{Kind: k, Alias: &k.Aliases[i]}
			next.resources[alias.Name()] = alias
		}
	}
	if len(declared) > 0 {
		next.openapi = s.described.With(declared)
	}
	s.serving.Store(next)
}
