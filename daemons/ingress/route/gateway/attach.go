package gateway

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"clusterctl/daemons/ingress/route"
)

// httpRoute is an HTTPRoute with its state.
type httpRoute struct {
	key         route.Key
	object      *gatewayv1.HTTPRoute
	gatewayKeys []route.Key // Gateways in its parent references
	services    []route.Key
	backends    []*route.Backend // one use for each reference to a backend
	rules       []route.PathRule
	rejection   *verdict // why it is rejected by all parents
	resolved    verdict
	parents     []parent
	attached    []*attachment
}

// parent is a parent reference to a Gateway of this proxy.
type parent struct {
	ref      gatewayv1.ParentReference
	accepted verdict
}

// attachment is the attachment of a route to a listener for some hosts.
type attachment struct {
	route    *httpRoute
	listener *listener
	hosts    []string
}

// compareAge orders routes. Among equal rules, that of the older route takes precedence.
func compareAge(a, b *httpRoute) int {
	if c := a.object.CreationTimestamp.Time.Compare(b.object.CreationTimestamp.Time); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.key.Namespace, b.key.Namespace), strings.Compare(a.key.Name, b.key.Name))
}

// updateRoute parses a route again and attaches it to its listeners.
func (b *Builder) updateRoute(key route.Key) {
	r := b.routes[key]
	if r == nil {
		return
	}
	for _, a := range r.attached {
		a.listener.detach(a)
	}
	for _, g := range r.gatewayKeys {
		removeFrom(b.routesByGateway, g, key)
	}
	for _, s := range r.services {
		removeFrom(b.routesByService, s, key)
	}
	before := r.backends
	if r.object == nil {
		delete(b.routes, key)
	} else {
		*r = httpRoute{key: key, object: r.object}
		b.compile(r) // before the old backends are released, so that shared backends are kept
		for i := range r.object.Spec.ParentRefs {
			b.attach(r, r.object.Spec.ParentRefs[i])
		}
	}
	for _, backend := range before {
		b.options.Backends.Release(backend)
	}
}

// attach attaches a route to the listeners of a parent reference.
func (b *Builder) attach(r *httpRoute, ref gatewayv1.ParentReference) {
	if ptr.Deref(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName || ptr.Deref(ref.Kind, "Gateway") != "Gateway" {
		return
	}
	key := route.Key{
		Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.key.Namespace))),
		Name:      string(ref.Name),
	}
	addTo(b.routesByGateway, key, r.key)
	r.gatewayKeys = append(r.gatewayKeys, key)
	g := b.gateways[key]
	if g == nil {
		return // it belongs to another controller, or does not exist yet
	}
	p := parent{ref, failVerdict(string(gatewayv1.RouteReasonNoMatchingParent), "the Gateway has no such listener")}
	switch {
	case r.rejection != nil:
		p.accepted = *r.rejection
	default:
		p.accepted = b.attachTo(r, g, ref, p.accepted)
	}
	r.parents = append(r.parents, p)
}

func (b *Builder) attachTo(r *httpRoute, g *gateway, ref gatewayv1.ParentReference, v verdict) verdict {
	rank := 0 // how many checks the closest listener has passed
	fail := func(near int, reason gatewayv1.RouteConditionReason, cause string) {
		if near > rank {
			rank, v = near, failVerdict(string(reason), "%s", cause)
		}
	}
	for _, l := range g.listeners {
		if ref.SectionName != nil && *ref.SectionName != l.spec.Name || ref.Port != nil && *ref.Port != l.spec.Port {
			continue
		}
		if !b.isNamespaceAllowed(l, r.key.Namespace) {
			fail(1, gatewayv1.RouteReasonNotAllowedByListeners, "no listener allows routes of this kind and namespace")
			continue
		}
		hosts := commonHosts(l.hostname, r.object.Spec.Hostnames)
		if len(hosts) == 0 {
			fail(2, gatewayv1.RouteReasonNoMatchingListenerHostname, "no hostname of the route is one of a listener's")
			continue
		}
		rank, v = 3, okVerdict(string(gatewayv1.RouteReasonAccepted))
		a := &attachment{r, l, hosts}
		if old := l.attached[r.key]; old != nil { // two references to the same listener
			a.hosts = old.hosts
			l.detach(old)
			r.attached = slices.DeleteFunc(r.attached, func(x *attachment) bool { return x == old })
		}
		l.add(a)
		r.attached = append(r.attached, a)
	}
	return v
}

func (l *listener) add(a *attachment) {
	l.attached[a.route.key] = a
	for _, host := range a.hosts {
		if l.byHost[host] == nil {
			l.byHost[host] = map[route.Key]*attachment{}
		}
		l.byHost[host][a.route.key] = a
		l.changedHosts[host] = true
	}
}

func (l *listener) detach(a *attachment) {
	delete(l.attached, a.route.key)
	for _, host := range a.hosts {
		delete(l.byHost[host], a.route.key)
		if len(l.byHost[host]) == 0 {
			delete(l.byHost, host)
		}
		l.changedHosts[host] = true
	}
}

// commonHosts returns the common hosts of a listener and a route. An empty listener hostname or list means all hosts.
func commonHosts(of string, hostnames []gatewayv1.Hostname) (hosts []string) {
	if len(hostnames) == 0 {
		return []string{of}
	}
	for _, h := range hostnames {
		name := strings.ToLower(string(h))
		switch {
		case of == "" || of == name || isBelow(name, of):
			hosts = append(hosts, name)
		case isBelow(of, name):
			hosts = append(hosts, of)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// isBelow reports whether a name, which may itself be a wildcard, is covered by a wildcard.
func isBelow(name, wildcard string) bool {
	suffix, ok := strings.CutPrefix(wildcard, "*")
	return ok && len(name) > len(suffix) && strings.HasSuffix(name, suffix)
}
