package apiserver

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/aggregate"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/discovery"
	"clusterctl/daemons/apiserver/openapi"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// servedKinds is the set of served resources at one time. It is immutable. When kinds are added or removed, it is
// replaced as a whole.
type servedKinds struct {
	resources map[schema.GroupVersionResource]wire.Served
	cache     *cache.Cache
	discovery *discovery.Handler
	openapi   *openapi.Handler

	aggregated map[schema.GroupVersion]*aggregate.Version // group versions that other servers answer
}

// Target returns the resource that this server serves.
func (o *servedKinds) Target(gvr schema.GroupVersionResource) request.Target {
	served, ok := o.resources[gvr]
	if !ok {
		return request.Target{}
	}
	return request.Target{Served: served, IsServed: true, Cache: o.cache.Resource(served.GR())}
}

// Aggregated returns the handler of a group version that an aggregated server serves; nil if none does.
func (o *servedKinds) Aggregated(gv schema.GroupVersion) request.Handler {
	if a := o.aggregated[gv]; a != nil {
		return a.Handle
	}
	return nil
}

// AggregatedDocument returns the handler that answers a path without a resource: the path of a group version, or of its
// OpenAPI document.
func (o *servedKinds) AggregatedDocument(path string) request.Handler {
	if len(o.aggregated) == 0 {
		return nil
	}
	parts := strings.Split(strings.Trim(strings.TrimPrefix(path, "/openapi/v3"), "/"), "/")
	if len(parts) != 3 || parts[0] != "apis" {
		return nil
	}
	return o.Aggregated(schema.GroupVersion{Group: parts[1], Version: parts[2]})
}

// kindRegistry holds the kinds that are served, and what they come from.
type kindRegistry struct {
	served    atomic.Pointer[servedKinds]
	cache     *cache.Cache
	builtIn   []*kinds.Kind
	openapi   *openapi.Handler // of the built-in kinds
	addresses Addresses        // in discovery documents

	mu         sync.Mutex
	declared   []*kinds.Kind // by CustomResourceDefinitions, in the version that is stored
	aggregated map[schema.GroupVersion]*aggregate.Version
	changed    chan struct{} // signals that declared has changed
}

// newKindRegistry returns a registry that serves the built-in kinds.
func newKindRegistry(storage *Storage, addresses Addresses) *kindRegistry {
	r := &kindRegistry{
		cache: storage.cache, builtIn: storage.kinds, openapi: openapi.New(storage.kinds), addresses: addresses,
		changed: make(chan struct{}, 1),
	}
	r.serveDeclared(nil)
	return r
}

// load returns the kinds that are served now.
func (r *kindRegistry) load() *servedKinds { return r.served.Load() }

// serveDeclared serves declared kinds in all versions, besides the built-in kinds.
func (r *kindRegistry) serveDeclared(declared []*kinds.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.declared = declared
	r.update()
	select {
	case r.changed <- struct{}{}:
	default: // a signal is pending already
	}
}

// serveAggregated passes group versions on to other servers.
func (r *kindRegistry) serveAggregated(all map[schema.GroupVersion]*aggregate.Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aggregated = all
	r.update()
}

// update replaces the served kinds. The caller holds r.mu.
func (r *kindRegistry) update() {
	var declared []*kinds.Kind
	for _, k := range r.declared {
		declared = append(declared, k.Untyped.Family.Served...)
	}
	all := slices.Concat(r.builtIn, declared)
	next := &servedKinds{
		cache:      r.cache,
		resources:  make(map[schema.GroupVersionResource]wire.Served, 2*len(all)),
		aggregated: map[schema.GroupVersion]*aggregate.Version{},
		openapi:    r.openapi,
	}
	own := map[schema.GroupVersion]bool{}
	for _, k := range all {
		hub := wire.Served{Kind: k}
		next.resources[hub.Name()] = hub
		own[k.GVK.GroupVersion()] = true
		for i := range k.Aliases {
			alias := wire.Served{Kind: k, Alias: &k.Aliases[i]}
			next.resources[alias.Name()] = alias
			own[k.Aliases[i].GVK.GroupVersion()] = true
		}
	}
	var others []discovery.ExternalVersion
	var elsewhere []openapi.ExternalVersion
	for gv, a := range r.aggregated {
		if own[gv] {
			continue // built-in group versions cannot be handed to another server
		}
		next.aggregated[gv] = a
		others = append(others,
			discovery.ExternalVersion{GroupVersion: gv, Resources: a.Resources, Stale: a.UnavailableReason != ""})
		elsewhere = append(elsewhere,
			openapi.ExternalVersion{Path: "apis/" + gv.String(), V2: a.Documents.V2, V3: a.Documents.V3})
	}
	slices.SortFunc(elsewhere, func(a, b openapi.ExternalVersion) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(others, func(a, b discovery.ExternalVersion) int {
		return strings.Compare(a.GroupVersion.String(), b.GroupVersion.String())
	})
	// Unchanged parts are shared with the previous servedKinds.
	before := r.load()
	var shown *discovery.Handler
	var described *openapi.Handler
	if before != nil {
		shown, described = before.discovery, before.openapi
	}
	next.discovery = discovery.New(shown, all, others...)
	next.discovery.Addresses = discoveryAddresses(r.addresses)
	if len(declared) > 0 || len(elsewhere) > 0 {
		next.openapi = r.openapi.With(described, declared, elsewhere...)
	}
	r.served.Store(next)
}

// discoveryAddresses returns the server's advertised address, and the address of the kubernetes Service for clients in
// the service network.
func discoveryAddresses(own Addresses) (a discovery.Addresses) {
	if own.AdvertiseAddress == "" {
		return a
	}
	a.Default = net.JoinHostPort(own.AdvertiseAddress, strconv.Itoa(own.AdvertisePort))
	if len(own.ServiceClusterIPRange) == 0 {
		return a
	}
	if services, err := netip.ParsePrefix(own.ServiceClusterIPRange[0]); err == nil {
		services = services.Masked()
		a.Ranges = []discovery.AddressRange{{Clients: services,
			Address: net.JoinHostPort(services.Addr().Next().String(), "443")}}
	}
	return a
}

// isGetOnly reports whether a path is that of a document that only GET can read.
func (o *servedKinds) isGetOnly(path string) bool {
	switch path {
	case "/version", "/version/", "/.well-known/openid-configuration", "/openid/v1/jwks":
		return true
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	versioned := parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) == 3
	return versioned && o.discovery.Has(path)
}
