package gateway

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"clusterctl/daemons/ingress/route"
)

// supportedFeatures are the supported features of the Gateway API. Features that depend on how Gateways get addresses
// are added separately.
var supportedFeatures = []gatewayv1.FeatureName{
	"Gateway", "GatewayHTTPListenerIsolation", "HTTPRoute", "HTTPRoute303RedirectStatusCode",
	"HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
	"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification",
	"HTTPRouteBackendTimeout",
	"HTTPRouteHostRewrite", "HTTPRouteMethodMatching", "HTTPRouteNamedRouteRule", "HTTPRouteParentRefPort",
	"HTTPRoutePathRedirect", "HTTPRoutePathRewrite",
	"HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestTimeout",
	"HTTPRouteResponseHeaderModification", "HTTPRouteSchemeRedirect", "ReferenceGrant",
}

// Location is where clients reach a Gateway.
type Location struct {
	Addresses []gatewayv1.GatewayStatusAddress
	Problem   string            // why there are no addresses
	OpenError func(Entry) error // returns why clients cannot connect to an entry, or nil
}

// Class returns a class, or nil.
func (b *Builder) Class(name string) *gatewayv1.GatewayClass { return b.classes[name] }

// Gateways returns the Gateways of this proxy, oldest first.
func (b *Builder) Gateways() []route.Key {
	return slices.SortedFunc(maps.Keys(b.gateways), b.compareGateways)
}

// Routes returns all routes.
func (b *Builder) Routes() []route.Key { return slices.Collect(maps.Keys(b.routes)) }

// Gateway returns the object of a Gateway, or nil.
func (b *Builder) Gateway(key route.Key) *gatewayv1.Gateway { return b.objects[key] }

// Route returns the object of a route, or nil.
func (b *Builder) Route(key route.Key) *gatewayv1.HTTPRoute {
	if r := b.routes[key]; r != nil {
		return r.object
	}
	return nil
}

// Ports returns the sorted ports of a Gateway's listeners that can be served.
func (b *Builder) Ports(key route.Key) (ports []int) {
	if g := b.gateways[key]; g != nil {
		for _, l := range g.listeners {
			if l.isServed() {
				ports = append(ports, int(l.spec.Port))
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// setCondition sets a condition from a verdict.
func setCondition[T ~string](list *[]metav1.Condition, kind T, v verdict, generation int64) {
	c := metav1.Condition{
		Type:               string(kind),
		Status:             metav1.ConditionTrue,
		Reason:             v.reason,
		Message:            v.message,
		ObservedGeneration: generation,
	}
	if !v.ok {
		c.Status = metav1.ConditionFalse
	}
	meta.SetStatusCondition(list, c)
}

// Classes returns the GatewayClasses of this proxy with their new status.
func (b *Builder) Classes() map[string]*gatewayv1.GatewayClass {
	out := map[string]*gatewayv1.GatewayClass{}
	for name, c := range b.classes {
		if c.Spec.ControllerName != Controller {
			continue
		}
		c = c.DeepCopy()
		v := okVerdict(string(gatewayv1.GatewayClassReasonAccepted))
		if p := c.Spec.ParametersRef; p != nil {
			v = failVerdict(string(gatewayv1.GatewayClassReasonInvalidParameters),
				"parameters of a class are not carried out: %s %s", p.Kind, p.Name)
		}
		setCondition(&c.Status.Conditions, gatewayv1.GatewayClassConditionStatusAccepted, v, c.Generation)
		names := supportedFeatures
		if b.options.Shared == nil {
			names = slices.Insert(slices.Clone(names), 2, "GatewayPort8080")
		}
		c.Status.SupportedFeatures = nil
		for _, n := range names {
			c.Status.SupportedFeatures = append(c.Status.SupportedFeatures, gatewayv1.SupportedFeature{Name: n})
		}
		out[name] = c
	}
	return out
}

// GatewayStatus returns the new status of a Gateway of this proxy. It is based on the current status, to keep
// transition times.
func (b *Builder) GatewayStatus(key route.Key, at Location) gatewayv1.GatewayStatus {
	object, g := b.objects[key], b.gateways[key]
	status := *object.Status.DeepCopy()
	old := status.Listeners
	status.Addresses, status.Listeners = at.Addresses, []gatewayv1.ListenerStatus{}
	valid, works := 0, 0
	for _, l := range g.listeners {
		one := gatewayv1.ListenerStatus{Name: l.spec.Name}
		if i := slices.IndexFunc(old, func(o gatewayv1.ListenerStatus) bool { return o.Name == l.spec.Name }); i >= 0 {
			one.Conditions = old[i].Conditions
		}
		one.SupportedKinds, one.AttachedRoutes = l.kinds, int32(len(l.attached))
		accepted := l.accepted
		if accepted.ok && !l.conflictFree.ok {
			accepted = l.conflictFree
		}
		conflicted := l.conflictFree
		conflicted.ok = !conflicted.ok
		programmed := okVerdict(string(gatewayv1.ListenerReasonProgrammed))
		switch {
		case !l.isServed():
			programmed = failVerdict(string(gatewayv1.ListenerReasonInvalid), "the listener is not served")
		case len(at.Addresses) == 0:
			programmed = failVerdict(string(gatewayv1.ListenerReasonPending), "the Gateway has no address yet")
		default:
			if err := at.OpenError(l.entry); err != nil {
				programmed = failVerdict(string(gatewayv1.ListenerReasonPending), "%v", err)
			}
		}
		setCondition(&one.Conditions, gatewayv1.ListenerConditionAccepted, accepted, object.Generation)
		setCondition(&one.Conditions, gatewayv1.ListenerConditionConflicted, conflicted, object.Generation)
		setCondition(&one.Conditions, gatewayv1.ListenerConditionResolvedRefs, l.resolved, object.Generation)
		setCondition(&one.Conditions, gatewayv1.ListenerConditionProgrammed, programmed, object.Generation)
		if accepted.ok {
			valid++
		}
		if programmed.ok {
			works++
		}
		status.Listeners = append(status.Listeners, one)
	}
	accepted, programmed := okVerdict(string(gatewayv1.GatewayReasonAccepted)), okVerdict(
		string(gatewayv1.GatewayReasonProgrammed),
	)
	switch {
	case g.rejection != nil:
		accepted = *g.rejection
	case valid == 0:
		accepted = failVerdict(string(gatewayv1.GatewayReasonListenersNotValid), "no listener is accepted")
	case valid < len(g.listeners):
		accepted = verdict{true, string(gatewayv1.GatewayReasonListenersNotValid), "some listeners are not accepted"}
	}
	switch {
	case !accepted.ok:
		programmed = failVerdict(string(gatewayv1.GatewayReasonInvalid), "the Gateway is not accepted")
	case len(at.Addresses) == 0:
		programmed = failVerdict(string(gatewayv1.GatewayReasonAddressNotAssigned), "%s", at.Problem)
	case works == 0:
		programmed = failVerdict(string(gatewayv1.GatewayReasonInvalid), "no listener is served")
	}
	setCondition(&status.Conditions, gatewayv1.GatewayConditionAccepted, accepted, object.Generation)
	setCondition(&status.Conditions, gatewayv1.GatewayConditionProgrammed, programmed, object.Generation)
	return status
}

// RouteStatus returns the new status of a route for the Gateways of this proxy. Entries of other controllers stay.
func (b *Builder) RouteStatus(key route.Key) gatewayv1.RouteStatus {
	r := b.routes[key]
	status := *r.object.Status.RouteStatus.DeepCopy()
	before := status.Parents
	status.Parents = []gatewayv1.RouteParentStatus{}
	for _, p := range before {
		if p.ControllerName != Controller {
			status.Parents = append(status.Parents, p)
		}
	}
	for _, p := range r.parents {
		one := gatewayv1.RouteParentStatus{ParentRef: p.ref, ControllerName: Controller}
		for _, old := range before {
			if old.ControllerName == Controller && sameParent(old.ParentRef, p.ref) {
				one.Conditions = old.Conditions
			}
		}
		setCondition(&one.Conditions, gatewayv1.RouteConditionAccepted, p.accepted, r.object.Generation)
		setCondition(&one.Conditions, gatewayv1.RouteConditionResolvedRefs, r.resolved, r.object.Generation)
		status.Parents = append(status.Parents, one)
	}
	return status
}

func sameParent(a, b gatewayv1.ParentReference) bool {
	return a.Name == b.Name && ptr.Equal(a.Namespace, b.Namespace) && ptr.Equal(a.SectionName, b.SectionName) &&
		ptr.Equal(a.Port, b.Port) &&
		ptr.Equal(a.Group, b.Group) &&
		ptr.Equal(a.Kind, b.Kind)
}
