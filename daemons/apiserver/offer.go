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

// serveKinds serves kinds besides those that are always there.
func (s *Server) serveKinds(more []*kinds.Kind) {
	all := slices.Concat(s.o.Kinds, more)
	next := &offer{resources: map[schema.GroupVersionResource]wire.Served{}, discovery: discovery.New(all), openapi: s.described}
	for _, k := range all {
		hub := wire.Served{Kind: k}
		if k.Untyped == nil || slices.Contains(k.Untyped.Versions, k.GVK.Version) {
			next.resources[hub.Name()] = hub
		}
		for i := range k.Aliases {
			alias := wire.Served{Kind: k, Alias: &k.Aliases[i]}
			next.resources[alias.Name()] = alias
		}
	}
	if len(more) > 0 {
		next.openapi = s.described.With(more)
	}
	s.serving.Store(next)
}
