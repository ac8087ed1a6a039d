package admission

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
)

// TestDaemonsWriteOnlyTheirMachine checks the content of writes by daemons, which the authorizer does not see.
// Proves S12, S31.
//
//style:long a table of writes by each daemon, with the builders of their objects
func TestDaemonsWriteOnlyTheirMachine(t *testing.T) {
	lease := func(name, holder string, seconds int32) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}}
	}
	slice := func(name, service, manager string, machines ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: manager}}}
		for _, m := range machines {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"},
				NodeName: ptr.To(m)})
		}
		return s
	}
	service := func(gateway string, change func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gateway-g"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		if gateway != "" {
			s.Labels = map[string]string{"clusterctl.local/gateway": gateway}
		}
		if change != nil {
			change(s)
		}
		return s
	}
	event := func(from string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Source: corev1.EventSource{Component: from}}
	}
	eventOn := func(from, host string) *corev1.Event {
		e := event(from)
		e.Source.Host = host
		return e
	}
	endpoint := func(address string, change func(*discoveryv1.Endpoint)) *discoveryv1.EndpointSlice {
		s := slice("kube-dns-a", "kube-dns", "dns.clusterctl", "a")
		s.Endpoints[0].Addresses = []string{address}
		if change != nil {
			change(&s.Endpoints[0])
		}
		return s
	}
	hinted := func(nodes ...string) *discoveryv1.EndpointSlice {
		return endpoint("10.0.0.1", func(e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{}
			for _, n := range nodes {
				e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: n})
			}
		})
	}
	zoned := hinted("a")
	zoned.Endpoints[0].Hints.ForZones = []discoveryv1.ForZone{{Name: "z"}}
	second := endpoint("10.0.0.1", func(e *discoveryv1.Endpoint) { e.Addresses = append(e.Addresses, "10.0.0.2") })
	bare := slice("kube-dns-a", "kube-dns", "dns.clusterctl", "a")
	bare.Endpoints[0].NodeName = nil
	machines := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "machine-inventory"},
		Data: map[string]string{"a": `{"roles":["node"],"addresses":["10.0.0.1","fd00::1"]}`,
			"b": `{"roles":["node"],"addresses":["10.0.0.2"]}`}}
	o := apifake.New(machines, service("g", nil),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	leases, slices := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"},
		schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	services, events := schema.GroupResource{Resource: "services"}, schema.GroupResource{Resource: "events"}
	for name, c := range map[string]struct {
		daemon    string
		resource  schema.GroupResource
		namespace string
		old, now  runtime.Object
		ok        bool
	}{
		"its own lease": {"kube-dns", leases, "kube-system", nil, lease("kube-dns-a", "a", 20),
			true},
		"its own lease, renewed": {"kube-dns", leases, "kube-system", lease("kube-dns-a", "a", 20),
			lease("kube-dns-a", "a", 120), true},
		"its own lease for another machine": {"kube-dns", leases, "kube-system", nil, lease("kube-dns-a", "b", 20),
			false},
		"another machine's lease": {"kube-dns", leases, "kube-system", nil, lease("kube-dns-b", "b", 20),
			false},
		"the lease of the controllers": {"kube-dns", leases, "kube-system", nil,
			lease("kube-controller-manager", "a", 3600), false},
		"an election": {"kube-ingress", leases, "kube-system", nil,
			lease("kube-ingress", "host_1234", 15), true},
		"an election for an hour": {"kube-ingress", leases, "kube-system", lease("kube-ingress", "x", 15),
			lease("kube-ingress", "host_1234", 3600), false},
		"addresses": {"kube-network", leases, "kube-system", nil,
			lease("load-balancer-0", "a", 2), true},
		"addresses released": {"kube-network", leases, "kube-system", lease("load-balancer-0", "a", 2),
			lease("load-balancer-0", "", 2), true},
		"addresses for another machine": {"kube-network", leases, "kube-system",
			lease("load-balancer-0", "a", 2), lease("load-balancer-0", "b", 2), false},
		"an unknown lease": {"kube-network", leases, "kube-system", nil, lease("kube-network-a", "a", 2),
			false},
		"its own slice": {"kube-dns", slices, "kube-system", nil,
			slice("kube-dns-a", "kube-dns", "dns.clusterctl", "a"), true},
		"its own second slice": {"kube-dns", slices, "kube-system", nil,
			slice("kube-dns.ipv6-a", "kube-dns", "dns.clusterctl", "a"), true},
		"an endpoint with its second address": {"kube-dns", slices, "kube-system", nil, endpoint("fd00:0::1", nil),
			true},
		"another machine's address": {"kube-dns", slices, "kube-system", nil, endpoint("10.0.0.2", nil), false},
		"an address of no machine": {"kube-dns", slices, "kube-system", nil, endpoint("192.0.2.1", nil),
			false},
		"an endpoint with a second address": {"kube-dns", slices, "kube-system", nil, second, false},
		"an endpoint for its machine":       {"kube-dns", slices, "kube-system", nil, hinted("a"), true},
		"an endpoint for another machine":   {"kube-dns", slices, "kube-system", nil, hinted("a", "b"), false},
		"an endpoint for a zone":            {"kube-dns", slices, "kube-system", nil, zoned, false},
		"its own slice, empty": {"kube-dns", slices, "kube-system", nil,
			slice("kube-dns-a", "kube-dns", "dns.clusterctl"), true},
		"a slice of another name": {"kube-dns", slices, "kube-system", nil,
			slice("kube-dns-x", "kube-dns", "dns.clusterctl", "a"), false},
		"another machine's endpoint": {"kube-dns", slices, "kube-system", nil,
			slice("kube-dns-a", "kube-dns", "dns.clusterctl", "b"), false},
		"two endpoints": {"kube-dns", slices, "kube-system", nil,
			slice("kube-dns-a", "kube-dns", "dns.clusterctl", "a", "a"), false},
		"an endpoint of no machine": {"kube-dns", slices, "kube-system", nil, bare, false},
		"an endpoint of another service": {"kube-dns", slices, "kube-system", nil,
			slice("kube-dns-a", "metrics-server", "dns.clusterctl", "a"), false},
		"a slice of another daemon's service": {"kube-ingress", slices, "kube-system", nil,
			slice("kube-ingress-a", "kube-dns", "ingress.clusterctl", "a"), false},
		"a slice in another namespace": {"kube-dns", slices, "shop", nil,
			slice("kube-dns-a", "kube-dns", "dns.clusterctl", "a"), false},
		"its own slice deleted": {"kube-dns", slices, "kube-system",
			slice("kube-dns-a", "kube-dns", "dns.clusterctl", "a"), nil, true},
		"the slice of a Gateway": {"kube-ingress", slices, "shop", nil,
			slice("gateway-g-ipv4", "gateway-g", "ingress.clusterctl", "a", "b"), true},
		"the slice of another service": {"kube-ingress", slices, "shop", nil,
			slice("web-1", "web", "ingress.clusterctl", "a"), false},
		"a slice of another controller": {"kube-ingress", slices, "shop",
			slice("gateway-g-1", "gateway-g", "endpointslice-controller.k8s.io"),
			slice("gateway-g-1", "gateway-g", "ingress.clusterctl"), false},
		"the service of a Gateway": {"kube-ingress", services, "shop", nil, service("g", nil), true},
		"another service":          {"kube-ingress", services, "shop", nil, service("", nil), false},
		"another service taken over": {"kube-ingress", services, "shop", service("", nil), service("g", nil),
			false},
		"another service deleted":           {"kube-ingress", services, "shop", service("", nil), nil, false},
		"the service of a Gateway, deleted": {"kube-ingress", services, "shop", service("g", nil), nil, true},
		"external addresses": {"kube-ingress", services, "shop", nil,
			service("g", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }), false},
		"a selector": {"kube-ingress", services, "shop", nil,
			service("g", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} }), false},
		"an event": {"kube-ingress", events, "shop", nil, event("kube-ingress"), true},
		"an event from another component": {"kube-ingress", events, "shop", nil, event("kubelet"),
			false},
		"an event without a source": {"kube-ingress", events, "shop", nil, event(""), false},
		"another component's event rewritten": {"kube-ingress", events, "shop", event("kubelet"),
			event("kube-ingress"), false},
		"an event of a node":                  {"node", events, "shop", nil, eventOn("kubelet", "a"), true},
		"an event of a node without its name": {"node", events, "shop", nil, event("kubelet"), true},
		"an event of another node":            {"node", events, "shop", nil, eventOn("kubelet", "b"), false},
		"an event of a node, counted": {"node", events, "shop", eventOn("kubelet", "a"),
			eventOn("kubelet", "a"), true},
		"a controller's event rewritten": {"node", events, "shop", event("deployment-controller"),
			eventOn("kubelet", "a"), false},
		"another node's event rewritten": {"node", events, "shop", eventOn("kubelet", "b"),
			eventOn("kubelet", "a"), false},
		"an event of a proxy":                {"kube-proxy", events, "shop", nil, event("kube-proxy"), true},
		"an event of a proxy as the kubelet": {"kube-proxy", events, "shop", nil, event("kubelet"), false},
		"the service of the metrics server": {"metrics-server", services, "kube-system", nil,
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "metrics-server"}}, true},
	} {
		a := &api.Admission{Operation: "CREATE", Namespace: c.namespace, Resource: c.resource.WithVersion("v1"),
			Object: c.now, Old: c.old,
			User: api.User{Name: "system:" + c.daemon + ":a", Groups: []string{"system:" + c.daemon}}}
		named := c.now
		switch {
		case c.now == nil:
			a.Operation, named = "DELETE", c.old
		case c.old != nil:
			a.Operation = "UPDATE"
		}
		a.Name = named.(metav1.Object).GetName()
		switch c.daemon {
		case "node":
			a.User.Groups = []string{api.GroupNodes}
		case "kube-proxy":
			a.User = api.User{Name: "system:kube-proxy"}
		}
		if err := (&replicaRestriction{o}).Validate(t.Context(), a); (err == nil) != c.ok {
			t.Errorf("%s: %v, want it allowed: %v", name, err, c.ok)
		}
		a.User = api.User{Name: "jane"}
		if err := (&replicaRestriction{o}).Validate(t.Context(), a); err != nil {
			t.Errorf("%s, by another user: %v", name, err)
		}
	}
}
