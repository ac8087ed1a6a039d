package gateway

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"clusterctl/daemons/ingress/route"
)

// sourcePrefix is the prefix of routes' names in sources. It distinguishes them from Ingresses.
const sourcePrefix = "HTTPRoute/"

// noTimeout is the longest timeout, for routes that disable it.
const noTimeout = 24 * time.Hour

// compile builds the rules of a route. An unsupported setting rejects the whole route, because applying only a part of
// it may be worse.
func (b *Builder) compile(r *httpRoute) {
	r.resolved = okVerdict(string(gatewayv1.RouteReasonResolvedRefs))
	refuse := func(v verdict) {
		if r.rejection == nil {
			r.rejection = &v
		}
	}
	for i := range r.object.Spec.Rules {
		spec := &r.object.Spec.Rules[i]
		if v := unsupportedSetting(spec); v != nil {
			refuse(*v)
			continue
		}
		policy, v := b.newPolicy(spec.Timeouts)
		if v != nil {
			refuse(*v)
			continue
		}
		template := route.Rule{
			Source:  route.Source{Namespace: r.key.Namespace, Name: sourcePrefix + r.key.Name},
			Policy:  policy,
			Missing: 500,
		}
		for _, ref := range spec.BackendRefs {
			w := b.weightedBackend(r, ref, spec)
			template.Backends = append(template.Backends, w)
			if w.Backend != nil && template.Source.Service == "" {
				template.Source.Service = w.Backend.Key.Service.Name
			}
		}
		if b.options.Counter != nil {
			template.Counter = b.options.Counter(template.Source)
		}
		matches := spec.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.HTTPRouteMatch{{}}
		}
		for j := range matches {
			r.rules = append(r.rules, newPathRule(template, &matches[j], spec.Filters))
		}
	}
	if r.rejection != nil {
		r.rules = nil
	}
}

// newPathRule returns the rule of one match.
func newPathRule(template route.Rule, m *gatewayv1.HTTPRouteMatch, filters []gatewayv1.HTTPRouteFilter) route.PathRule {
	rule := template
	path := ptr.Deref(m.Path, gatewayv1.HTTPPathMatch{})
	p := route.PathRule{
		Path:  ptr.Deref(path.Value, "/"),
		Exact: ptr.Deref(path.Type, gatewayv1.PathMatchPathPrefix) == gatewayv1.PathMatchExact,
		Rule:  &rule,
	}
	rule.Path = p.Path
	rule.Match.Method = string(ptr.Deref(m.Method, ""))
	for _, h := range m.Headers {
		// If several matches name the same field, the first one applies.
		if !slices.ContainsFunc(rule.Match.Headers,
			func(p route.Pair) bool { return strings.EqualFold(p.Name, string(h.Name)) }) {
			rule.Match.Headers = append(rule.Match.Headers, route.Pair{Name: string(h.Name), Value: h.Value})
		}
	}
	for _, q := range m.QueryParams {
		if !slices.ContainsFunc(rule.Match.Query, func(p route.Pair) bool { return p.Name == string(q.Name) }) {
			rule.Match.Query = append(rule.Match.Query, route.Pair{Name: string(q.Name), Value: q.Value})
		}
	}
	for i := range filters {
		f := &filters[i]
		switch f.Type {
		case gatewayv1.HTTPRouteFilterRequestHeaderModifier:
			rule.Filters.Request = headers(f.RequestHeaderModifier)
		case gatewayv1.HTTPRouteFilterResponseHeaderModifier:
			rule.Filters.Response = headers(f.ResponseHeaderModifier)
		case gatewayv1.HTTPRouteFilterRequestRedirect:
			rule.Filters.Redirect = redirect(f.RequestRedirect, p.Path)
		case gatewayv1.HTTPRouteFilterURLRewrite:
			rule.Filters.Rewrite = &route.Rewrite{Host: string(ptr.Deref(f.URLRewrite.Hostname, ""))}
			rule.Filters.Rewrite.Path, rule.Filters.Rewrite.Prefix = pathChange(f.URLRewrite.Path, p.Path)
		}
	}
	return p
}

func redirect(f *gatewayv1.HTTPRequestRedirectFilter, prefix string) *route.Redirect {
	out := &route.Redirect{
		Scheme: ptr.Deref(f.Scheme, ""),
		Host:   string(ptr.Deref(f.Hostname, "")),
		Port:   int(ptr.Deref(f.Port, 0)),
		Code:   ptr.Deref(f.StatusCode, 302),
	}
	out.Path, out.Prefix = pathChange(f.Path, prefix)
	return out
}

// pathChange returns the replacement of the request's path, or of its prefix.
func pathChange(m *gatewayv1.HTTPPathModifier, prefix string) (string, *route.Swap) {
	switch {
	case m == nil:
		return "", nil
	case m.Type == gatewayv1.FullPathHTTPPathModifier:
		if full := ptr.Deref(m.ReplaceFullPath, ""); strings.HasPrefix(full, "/") {
			return full, nil
		}
		return "/" + ptr.Deref(m.ReplaceFullPath, ""), nil
	}
	return "", route.NewSwap(prefix, ptr.Deref(m.ReplacePrefixMatch, ""))
}

func headers(f *gatewayv1.HTTPHeaderFilter) *route.Headers {
	out := &route.Headers{Remove: f.Remove}
	for _, h := range f.Set {
		out.Set = append(out.Set, route.Pair{Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Add {
		out.Add = append(out.Add, route.Pair{Name: string(h.Name), Value: h.Value})
	}
	return out
}

// newPolicy returns the policy of a rule. Both timeouts have the same meaning, because requests are not retried on
// timeouts.
func (b *Builder) newPolicy(t *gatewayv1.HTTPRouteTimeouts) (*route.Policy, *verdict) {
	p := b.options.Policy
	if t == nil {
		return &p, nil
	}
	for _, text := range []*gatewayv1.Duration{t.Request, t.BackendRequest} {
		if text == nil {
			continue
		}
		d, err := time.ParseDuration(string(*text))
		if err != nil || d < 0 {
			v := failVerdict(string(gatewayv1.RouteReasonUnsupportedValue), "%q is not a duration", *text)
			return nil, &v
		}
		if d == 0 {
			p.Read = noTimeout
			continue
		}
		if p.Total == 0 || d < p.Total {
			p.Total = d
		}
	}
	p.Read = max(p.Read, p.Total)
	return &p, nil
}

// weightedBackend returns a backend with its weight. An invalid backend keeps its weight, and its share of the requests
// fails.
func (b *Builder) weightedBackend(r *httpRoute, ref gatewayv1.HTTPBackendRef,
	spec *gatewayv1.HTTPRouteRule) route.Weighted {
	w := route.Weighted{Weight: int(ptr.Deref(ref.Weight, 1))}
	unresolved := func(reason gatewayv1.RouteConditionReason, format string, args ...any) route.Weighted {
		if r.resolved.ok {
			r.resolved = failVerdict(string(reason), format, args...)
		}
		return w
	}
	if ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Service") != "Service" {
		return unresolved(gatewayv1.RouteReasonInvalidKind, "backends are Services, not %s", ptr.Deref(ref.Kind, ""))
	}
	key := route.Key{
		Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.key.Namespace))),
		Name:      string(ref.Name),
	}
	addTo(b.routesByService, key, r.key)
	r.services = append(r.services, key)
	if !b.isPermitted(reference{"HTTPRoute", r.key.Namespace, "Service", key}) {
		return unresolved(gatewayv1.RouteReasonRefNotPermitted,
			"no ReferenceGrant of namespace %s lets HTTPRoutes of namespace %s use service %s", key.Namespace,
			r.key.Namespace, key.Name)
	}
	s := b.options.Backends.Service(key)
	if s == nil {
		return unresolved(gatewayv1.RouteReasonBackendNotFound, "there is no service %s", key)
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return unresolved(gatewayv1.RouteReasonUnsupportedProtocol,
			"service %s is of type ExternalName and has no endpoints", key)
	}
	number := ptr.Deref(ref.Port, 0)
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == number && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	})
	if i < 0 {
		return unresolved(gatewayv1.RouteReasonBackendNotFound, "service %s has no TCP port %d", key, number)
	}
	protocol, err := protocolOf(ptr.Deref(s.Spec.Ports[i].AppProtocol, ""))
	if err != nil {
		return unresolved(gatewayv1.RouteReasonUnsupportedProtocol, "port %d of service %s: %v", number, key, err)
	}
	w.Backend = b.options.Backends.Use(
		route.BackendKey{Service: key, Port: strconv.Itoa(int(number)), Protocol: protocol},
	)
	r.backends = append(r.backends, w.Backend)
	for _, f := range ref.Filters {
		if f.RequestHeaderModifier != nil {
			w.Request = combineHeaders(headerFilter(spec, gatewayv1.HTTPRouteFilterRequestHeaderModifier),
				headers(f.RequestHeaderModifier))
		}
		if f.ResponseHeaderModifier != nil {
			w.Response = combineHeaders(headerFilter(spec, gatewayv1.HTTPRouteFilterResponseHeaderModifier),
				headers(f.ResponseHeaderModifier))
		}
	}
	return w
}

func protocolOf(app string) (route.Protocol, error) {
	switch strings.ToLower(app) {
	case "", "http", "kubernetes.io/ws":
		return route.HTTP, nil
	case "kubernetes.io/h2c", "grpc":
		return route.GRPC, nil
	}
	return "", fmt.Errorf("appProtocol %q is not supported", app)
}

func headerFilter(spec *gatewayv1.HTTPRouteRule, t gatewayv1.HTTPRouteFilterType) *route.Headers {
	for i := range spec.Filters {
		if f := &spec.Filters[i]; f.Type == t {
			if f.RequestHeaderModifier != nil {
				return headers(f.RequestHeaderModifier)
			}
			return headers(f.ResponseHeaderModifier)
		}
	}
	return nil
}

// combineHeaders combines two header changes, applied one after the other.
func combineHeaders(first, then *route.Headers) *route.Headers {
	if first == nil {
		return then
	}
	touched := func(p route.Pair) bool {
		return slices.ContainsFunc(then.Set, func(s route.Pair) bool { return strings.EqualFold(s.Name, p.Name) }) ||
			slices.ContainsFunc(then.Remove, func(n string) bool { return strings.EqualFold(n, p.Name) })
	}
	out := &route.Headers{Remove: append(slices.Clone(first.Remove), then.Remove...)}
	out.Set = append(slices.DeleteFunc(slices.Clone(first.Set), touched), then.Set...)
	for _, p := range first.Set { // also remove the client's value of fields that are dropped here
		if touched(p) {
			out.Remove = append(out.Remove, p.Name)
		}
	}
	out.Add = append(slices.DeleteFunc(slices.Clone(first.Add), touched), then.Add...)
	return out
}
