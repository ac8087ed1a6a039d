package gateway

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"clusterctl/daemons/ingress/route"
)

// gateway is a Gateway of this proxy.
type gateway struct {
	key       route.Key
	listeners []*listener
	secrets   []route.Key
	rejection *verdict // why the whole Gateway is not served
}

// verdict is the result of one condition of an object.
type verdict struct {
	ok              bool
	reason, message string
}

func okVerdict(reason string) verdict { return verdict{ok: true, reason: reason} }

func failVerdict(reason, format string, args ...any) verdict {
	return verdict{reason: reason, message: fmt.Sprintf(format, args...)}
}

// listener is a listener of a Gateway with its attached routes.
type listener struct {
	gateway      *gateway
	spec         *gatewayv1.Listener
	entry        Entry
	secure       bool
	hostname     string
	kinds        []gatewayv1.RouteGroupKind
	accepted     verdict
	conflictFree verdict // whether it conflicts with no other listener
	resolved     verdict
	certs        []*tls.Certificate
	namespaces   labels.Selector // nil: only the Gateway's namespace

	attached     map[route.Key]*attachment
	byHost       map[string]map[route.Key]*attachment
	changedHosts map[string]bool // hosts whose rules must be rebuilt
	table        *route.Listener
}

// isServed reports whether the listener serves requests.
func (l *listener) isServed() bool {
	return l.gateway.rejection == nil && l.accepted.ok && l.conflictFree.ok && (!l.secure || len(l.certs) > 0)
}

// updateGateway parses a Gateway again, and marks its routes for an update.
func (b *Builder) updateGateway(key route.Key) {
	if old := b.gateways[key]; old != nil {
		for _, l := range old.listeners {
			b.changedEntries[l.entry] = true
		}
		for _, secret := range old.secrets {
			removeFrom(b.gatewaysBySecret, secret, key)
			b.changedSecrets[secret] = struct{}{}
		}
	}
	delete(b.gateways, key)
	maps.Copy(b.staleRoutes, b.routesByGateway[key])
	object := b.objects[key]
	if object == nil || !b.isOurs(string(object.Spec.GatewayClassName)) {
		return
	}
	g := &gateway{key: key, rejection: b.checkGateway(object)}
	b.gateways[key] = g
	for i := range object.Spec.Listeners {
		l := b.newListener(g, &object.Spec.Listeners[i])
		g.listeners = append(g.listeners, l)
		b.changedEntries[l.entry] = true
	}
	b.markConflicts(g)
}

// checkGateway returns why a whole Gateway is not supported, or nil.
func (b *Builder) checkGateway(object *gatewayv1.Gateway) *verdict {
	var v verdict
	s := &object.Spec
	switch in := s.Infrastructure; {
	case len(s.Addresses) > 0:
		v = failVerdict(string(gatewayv1.GatewayReasonUnsupportedAddress), "addresses cannot be chosen in a Gateway")
	case s.TLS != nil:
		v = failVerdict(string(gatewayv1.GatewayReasonInvalidParameters),
			"spec.tls is not carried out: clients' certificates are not asked for, and backends are shown none")
	case in != nil && in.ParametersRef != nil:
		v = failVerdict(string(gatewayv1.GatewayReasonInvalidParameters), "there are no parameters: %s %s",
			in.ParametersRef.Kind, in.ParametersRef.Name)
	case in != nil && (len(in.Labels) > 0 || len(in.Annotations) > 0):
		v = failVerdict(string(gatewayv1.GatewayReasonInvalidParameters),
			"labels and annotations of the infrastructure are not carried out")
	case s.AllowedListeners != nil && s.AllowedListeners.Namespaces != nil &&
		ptr.Deref(s.AllowedListeners.Namespaces.From, gatewayv1.NamespacesFromNone) != gatewayv1.NamespacesFromNone:
		v = failVerdict(string(gatewayv1.GatewayReasonInvalidParameters), "listeners of ListenerSets are not carried "+
			"out")
	default:
		return nil
	}
	return &v
}

func (b *Builder) newListener(g *gateway, spec *gatewayv1.Listener) *listener {
	l := &listener{
		gateway: g, spec: spec, entry: Entry{Gateway: g.key, Port: int(spec.Port)},
		hostname: strings.ToLower(string(ptr.Deref(spec.Hostname, ""))),
		accepted: okVerdict(
			string(gatewayv1.ListenerReasonAccepted),
		), conflictFree: okVerdict(string(gatewayv1.ListenerReasonNoConflicts)),
		resolved: okVerdict(string(gatewayv1.ListenerReasonResolvedRefs)),
		kinds:    []gatewayv1.RouteGroupKind{}, attached: map[route.Key]*attachment{},
		byHost: map[string]map[route.Key]*attachment{}, changedHosts: map[string]bool{},
	}
	if b.options.Shared != nil {
		l.entry.Gateway = route.Key{}
	}
	switch spec.Protocol {
	case gatewayv1.HTTPProtocolType:
	case gatewayv1.HTTPSProtocolType:
		l.secure = true
	default:
		l.accepted = failVerdict(string(gatewayv1.ListenerReasonUnsupportedProtocol),
			"only HTTP and HTTPS are served, not %s", spec.Protocol)
		l.table = &route.Listener{Hostname: l.hostname}
		return l
	}
	if b.options.Shared != nil {
		if secure, ok := b.options.Shared[int(spec.Port)]; !ok || secure != l.secure {
			l.accepted = failVerdict(string(gatewayv1.ListenerReasonPortUnavailable),
				"port %d is not the machines' for %s", spec.Port, spec.Protocol)
		}
	}
	if t := spec.TLS; t != nil {
		switch {
		case ptr.Deref(t.Mode, gatewayv1.TLSModeTerminate) != gatewayv1.TLSModeTerminate:
			l.accepted = failVerdict(string(gatewayv1.ListenerReasonUnsupportedValue), "TLS can only be terminated")
		case len(t.Options) > 0:
			l.accepted = failVerdict(string(gatewayv1.ListenerReasonUnsupportedValue), "options of TLS are not "+
				"carried out")
		}
	}
	b.parseAllowedRoutes(l)
	b.loadCertificates(l)
	l.table = &route.Listener{Hostname: l.hostname, Certs: l.certs}
	return l
}

var httpRouteKind = gatewayv1.RouteGroupKind{Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: "HTTPRoute"}

// parseAllowedRoutes parses which routes a listener allows.
func (b *Builder) parseAllowedRoutes(l *listener) {
	allowed := ptr.Deref(l.spec.AllowedRoutes, gatewayv1.AllowedRoutes{})
	for _, k := range allowed.Kinds {
		if string(ptr.Deref(k.Group, gatewayv1.GroupName)) != gatewayv1.GroupName || k.Kind != httpRouteKind.Kind {
			l.resolved = failVerdict(string(gatewayv1.ListenerReasonInvalidRouteKinds),
				"only HTTPRoutes are served, not %s", k.Kind)
		} else if len(l.kinds) == 0 {
			l.kinds = append(l.kinds, httpRouteKind)
		}
	}
	if len(allowed.Kinds) == 0 {
		l.kinds = append(l.kinds, httpRouteKind)
	}
	namespaces := ptr.Deref(allowed.Namespaces, gatewayv1.RouteNamespaces{})
	switch ptr.Deref(namespaces.From, gatewayv1.NamespacesFromSame) {
	case gatewayv1.NamespacesFromAll:
		l.namespaces = labels.Everything()
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(namespaces.Selector)
		if err != nil {
			l.accepted = failVerdict(string(gatewayv1.ListenerReasonUnsupportedValue),
				"the selector of namespaces cannot be read: %v", err)
			selector = labels.Nothing()
		}
		l.namespaces = selector
	case gatewayv1.NamespacesFromSame:
	default:
		l.namespaces = labels.Nothing()
	}
}

// loadCertificates loads the usable certificates of a listener, and records why others cannot be used.
func (b *Builder) loadCertificates(l *listener) {
	if l.spec.TLS == nil {
		return
	}
	refs := l.spec.TLS.CertificateRefs
	if len(refs) == 0 {
		l.resolved = failVerdict(string(gatewayv1.ListenerReasonInvalidCertificateRef), "no certificate is named")
	}
	for _, ref := range refs {
		key := route.Key{
			Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(l.gateway.key.Namespace))),
			Name:      string(ref.Name),
		}
		if ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Secret") != "Secret" {
			l.resolved = failVerdict(string(gatewayv1.ListenerReasonInvalidCertificateRef),
				"certificates are in Secrets, not in %s", ptr.Deref(ref.Kind, ""))
			continue
		}
		addTo(b.gatewaysBySecret, key, l.gateway.key)
		b.changedSecrets[key] = struct{}{}
		l.gateway.secrets = append(l.gateway.secrets, key)
		if !b.isPermitted(reference{"Gateway", l.gateway.key.Namespace, "Secret", key}) {
			l.resolved = failVerdict(string(gatewayv1.ListenerReasonRefNotPermitted),
				"no ReferenceGrant of namespace %s lets Gateways of namespace %s use secret %s", key.Namespace,
				l.gateway.key.Namespace, key.Name)
			continue
		}
		cert, err := b.options.Certificate(key)
		if err != nil {
			l.resolved = failVerdict(string(gatewayv1.ListenerReasonInvalidCertificateRef), "%v", err)
			continue
		}
		l.certs = append(l.certs, cert)
	}
}

// markConflicts detects conflicting listeners. Within a Gateway, none of them is served. Between Gateways, those of the
// older Gateway are served.
func (b *Builder) markConflicts(g *gateway) {
	for i, l := range g.listeners {
		for _, other := range g.listeners[i+1:] {
			if l.spec.Port != other.spec.Port || !l.accepted.ok || !other.accepted.ok {
				continue
			}
			switch {
			case l.spec.Protocol != other.spec.Protocol:
				l.conflictFree = failVerdict(string(gatewayv1.ListenerReasonProtocolConflict),
					"listener %s speaks %s on port %d", other.spec.Name, other.spec.Protocol, l.spec.Port)
				other.conflictFree = failVerdict(string(gatewayv1.ListenerReasonProtocolConflict),
					"listener %s speaks %s on port %d", l.spec.Name, l.spec.Protocol, l.spec.Port)
			case l.hostname == other.hostname:
				l.conflictFree = failVerdict(string(gatewayv1.ListenerReasonHostnameConflict),
					"listener %s has the same port and hostname", other.spec.Name)
				other.conflictFree = failVerdict(string(gatewayv1.ListenerReasonHostnameConflict),
					"listener %s has the same port and hostname", l.spec.Name)
			}
		}
	}
	if b.options.Shared == nil {
		return
	}
	for key, older := range b.gateways {
		if key == g.key || b.compareGateways(key, g.key) > 0 {
			continue
		}
		for _, l := range g.listeners {
			if slices.ContainsFunc(older.listeners,
				func(o *listener) bool { return o.isServed() && o.entry == l.entry && o.hostname == l.hostname }) {
				l.conflictFree = failVerdict(string(gatewayv1.ListenerReasonHostnameConflict),
					"Gateway %s, which is older, has the same port and hostname", key)
			}
		}
	}
}

// isNamespaceAllowed reports whether a listener accepts HTTPRoutes of a namespace.
func (b *Builder) isNamespaceAllowed(l *listener, namespace string) bool {
	if len(l.kinds) == 0 {
		return false
	}
	if l.namespaces == nil {
		return namespace == l.gateway.key.Namespace
	}
	of, ok := b.namespaces[namespace]
	return ok && l.namespaces.Matches(labels.Set(of))
}

// rebuild rebuilds the rules of changed hosts, and reports whether there were any.
func (l *listener) rebuild() bool {
	if len(l.changedHosts) == 0 {
		return false
	}
	hosts := map[string][]route.PathRule{}
	for name := range l.changedHosts {
		hosts[name] = nil
		for _, a := range slices.SortedFunc(maps.Values(l.byHost[name]),
			func(x, y *attachment) int { return compareAge(x.route, y.route) }) {
			hosts[name] = append(hosts[name], a.route.rules...)
		}
	}
	l.table = l.table.WithHosts(hosts)
	clear(l.changedHosts)
	return true
}
