// Package gateway decides how the proxy implements Gateways and HTTPRoutes: which listeners it serves with which rules,
// and the status of the objects. It works on plain values and builds tables for package route. Other packages watch the
// API, open sockets and write statuses.
package gateway

import (
	"cmp"
	"crypto/tls"
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	shared "clusterctl/daemons/api/gateway"
	"clusterctl/daemons/ingress/route"
)

// Controller is the controller name in the GatewayClasses of this proxy.
const Controller = shared.Controller

// Options configures a Builder.
type Options struct {
	Backends    *route.Backends
	Certificate func(route.Key) (*tls.Certificate, error) // returns the certificate in a secret
	Policy      route.Policy                              // defaults for settings that routes do not set
	Counter     func(route.Source) any                    // see route.Options
	// Shared holds the ports of the machines that all Gateways share, and whether they use TLS. Nil means that each
	// Gateway has its own addresses.
	Shared map[int]bool
}

// Entry is a port for clients: of a Gateway with its own addresses, or of the machines.
type Entry struct {
	Gateway route.Key // empty if all Gateways share the machines' addresses
	Port    int
}

// Served is what an entry serves.
type Served struct {
	Secure    bool
	Listeners []*route.Listener
}

// Builder builds listeners from objects. It must be used by one goroutine at a time. A changed route costs its hosts,
// and a changed Gateway its routes.
type Builder struct {
	options          Options
	classes          map[string]*gatewayv1.GatewayClass
	objects          map[route.Key]*gatewayv1.Gateway // all Gateways, including those of other classes
	gateways         map[route.Key]*gateway           // Gateways of this proxy
	routes           map[route.Key]*httpRoute
	grants           map[string]map[string]*gatewayv1.ReferenceGrant // by namespace, then by name
	namespaces       map[string]map[string]string                    // labels by name
	routesByGateway  map[route.Key]map[route.Key]bool                // routes by Gateway
	routesByService  map[route.Key]map[route.Key]bool                // routes by service
	gatewaysBySecret map[route.Key]map[route.Key]bool                // Gateways by secret
	// changedSecrets holds the secrets whose use has changed since the last call of ChangedSecrets.
	changedSecrets map[route.Key]struct{}

	staleGateways, staleRoutes map[route.Key]bool
	changedEntries             map[Entry]bool
	served                     map[Entry]*Served
}

// NewBuilder returns a Builder without objects.
func NewBuilder(o Options) *Builder {
	return &Builder{
		options: o, classes: map[string]*gatewayv1.GatewayClass{}, objects: map[route.Key]*gatewayv1.Gateway{},
		gateways: map[route.Key]*gateway{},
		routes:   map[route.Key]*httpRoute{}, grants: map[string]map[string]*gatewayv1.ReferenceGrant{},
		namespaces:      map[string]map[string]string{},
		routesByGateway: map[route.Key]map[route.Key]bool{}, routesByService: map[route.Key]map[route.Key]bool{},
		gatewaysBySecret: map[route.Key]map[route.Key]bool{}, changedSecrets: map[route.Key]struct{}{},
		staleGateways: map[route.Key]bool{}, staleRoutes: map[route.Key]bool{}, changedEntries: map[Entry]bool{},
		served: map[Entry]*Served{},
	}
}

// SetClass sets a GatewayClass. class is nil if it was deleted.
func (b *Builder) SetClass(name string, class *gatewayv1.GatewayClass) {
	if class == nil {
		delete(b.classes, name)
	} else {
		b.classes[name] = class
	}
	for key, g := range b.objects {
		if string(g.Spec.GatewayClassName) == name {
			b.staleGateways[key] = true
		}
	}
}

// SetGateway sets a Gateway. g is nil if it was deleted. A change of only the status has no cost.
func (b *Builder) SetGateway(key route.Key, g *gatewayv1.Gateway) {
	before := b.objects[key]
	if g == nil {
		delete(b.objects, key)
	} else {
		b.objects[key] = g
	}
	if before != nil && g != nil && before.UID == g.UID && before.Generation == g.Generation {
		return
	}
	b.staleGateways[key] = true
	if b.options.Shared != nil { // a listener that an older Gateway releases can go to another
		for other := range b.gateways {
			b.staleGateways[other] = true
		}
	}
}

// SetRoute sets an HTTPRoute. object is nil if it was deleted. A change of only the status has no cost.
func (b *Builder) SetRoute(key route.Key, object *gatewayv1.HTTPRoute) {
	r := b.routes[key]
	switch {
	case r == nil && object == nil:
		return
	case r == nil:
		r = &httpRoute{key: key}
		b.routes[key] = r
	case object != nil && r.object != nil && r.object.UID == object.UID && r.object.Generation == object.Generation:
		r.object = object
		return
	}
	r.object = object
	b.staleRoutes[key] = true
}

// SetGrant sets a ReferenceGrant. grant is nil if it was deleted.
func (b *Builder) SetGrant(key route.Key, grant *gatewayv1.ReferenceGrant) {
	if grant == nil {
		delete(b.grants[key.Namespace], key.Name)
	} else {
		if b.grants[key.Namespace] == nil {
			b.grants[key.Namespace] = map[string]*gatewayv1.ReferenceGrant{}
		}
		b.grants[key.Namespace][key.Name] = grant
	}
	for service, routes := range b.routesByService {
		if service.Namespace == key.Namespace {
			maps.Copy(b.staleRoutes, routes)
		}
	}
	for secret, gateways := range b.gatewaysBySecret {
		if secret.Namespace == key.Namespace {
			maps.Copy(b.staleGateways, gateways)
		}
	}
}

// SetNamespace sets a namespace's labels. labels is nil if it was deleted.
func (b *Builder) SetNamespace(name string, labels map[string]string) {
	before, ok := b.namespaces[name]
	if labels == nil {
		delete(b.namespaces, name)
	} else {
		b.namespaces[name] = labels
	}
	if ok && labels != nil && maps.Equal(before, labels) {
		return
	}
	for key := range b.routes {
		if key.Namespace == name {
			b.staleRoutes[key] = true
		}
	}
}

// ServiceChanged marks the routes that refer to a service for the next Update.
func (b *Builder) ServiceChanged(key route.Key) { maps.Copy(b.staleRoutes, b.routesByService[key]) }

// ChangedSecrets returns the secrets whose use by Gateways may have changed since the last call.
func (b *Builder) ChangedSecrets() map[route.Key]struct{} {
	touched := b.changedSecrets
	b.changedSecrets = map[route.Key]struct{}{}
	return touched
}

// IsReferenced reports whether a Gateway refers to a secret.
func (b *Builder) IsReferenced(secret route.Key) bool { return len(b.gatewaysBySecret[secret]) > 0 }

// SecretChanged marks the Gateways that refer to a secret for the next Update.
func (b *Builder) SecretChanged(key route.Key) { maps.Copy(b.staleGateways, b.gatewaysBySecret[key]) }

// Update processes all changes and returns the entries that serve something else than before. A nil value means that
// the entry was removed.
func (b *Builder) Update() map[Entry]*Served {
	for key := range b.staleGateways {
		if g := b.objects[key]; g == nil || !b.isOurs(string(g.Spec.GatewayClassName)) {
			b.updateGateway(key) // first, so that others can get its ports and hostnames
			delete(b.staleGateways, key)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.staleGateways), b.compareGateways) {
		b.updateGateway(key)
	}
	clear(b.staleGateways)
	for key := range b.staleRoutes {
		b.updateRoute(key)
	}
	clear(b.staleRoutes)
	news := map[Entry]*Served{}
	byEntry := map[Entry][]*listener{}
	for _, g := range b.gateways {
		for _, l := range g.listeners {
			if l.rebuild() {
				b.changedEntries[l.entry] = true
			}
			if l.isServed() {
				byEntry[l.entry] = append(byEntry[l.entry], l)
			}
		}
	}
	for entry := range b.changedEntries {
		if len(byEntry[entry]) == 0 {
			if b.served[entry] != nil {
				delete(b.served, entry)
				news[entry] = nil
			}
			continue
		}
		s := &Served{Secure: byEntry[entry][0].secure}
		for _, l := range byEntry[entry] {
			s.Listeners = append(s.Listeners, l.table)
		}
		b.served[entry], news[entry] = s, s
	}
	clear(b.changedEntries)
	return news
}

// compareGateways orders Gateways. If two want the same, the older one gets it.
func (b *Builder) compareGateways(x, y route.Key) int {
	g, h := b.objects[x], b.objects[y]
	if g != nil && h != nil {
		if c := g.CreationTimestamp.Time.Compare(h.CreationTimestamp.Time); c != 0 {
			return c
		}
	}
	return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
}

// isOurs reports whether a class belongs to this proxy.
func (b *Builder) isOurs(class string) bool {
	c := b.classes[class]
	return c != nil && c.Spec.ControllerName == Controller
}

// HasSource reports whether a source has a rule.
func (b *Builder) HasSource(s route.Source) bool {
	name, ok := strings.CutPrefix(s.Name, sourcePrefix)
	if !ok {
		return false
	}
	r := b.routes[route.Key{Namespace: s.Namespace, Name: name}]
	return r != nil && len(r.attached) > 0 &&
		(s.Service == "" || slices.ContainsFunc(r.backends,
			func(u *route.Backend) bool { return u.Key.Service.Name == s.Service }))
}

// reference is a reference between namespaces that a ReferenceGrant may allow.
type reference struct {
	fromKind, fromNamespace string
	toKind                  string
	to                      route.Key
}

// isPermitted reports whether an object of the Gateway API may refer to an object of the core group: in its own
// namespace, or if a ReferenceGrant allows it.
func (b *Builder) isPermitted(r reference) bool {
	if r.fromNamespace == r.to.Namespace {
		return true
	}
	for _, grant := range b.grants[r.to.Namespace] {
		from := slices.ContainsFunc(grant.Spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
			return f.Group == gatewayv1.GroupName && string(f.Kind) == r.fromKind &&
				string(f.Namespace) == r.fromNamespace
		})
		to := slices.ContainsFunc(grant.Spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
			return t.Group == "" && string(t.Kind) == r.toKind &&
				(t.Name == nil || *t.Name == "" || string(*t.Name) == r.to.Name)
		})
		if from && to {
			return true
		}
	}
	return false
}

func addTo(in map[route.Key]map[route.Key]bool, key, member route.Key) {
	if in[key] == nil {
		in[key] = map[route.Key]bool{}
	}
	in[key][member] = true
}

func removeFrom(in map[route.Key]map[route.Key]bool, key, member route.Key) {
	delete(in[key], member)
	if len(in[key]) == 0 {
		delete(in, key)
	}
}
