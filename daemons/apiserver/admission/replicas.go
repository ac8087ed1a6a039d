package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/gateway"
	"clusterctl/daemons/api/replica"
	"clusterctl/daemons/apiserver/authz"
	"clusterctl/daemons/config/inventory"
)

var (
	leasesGR         = resourceName{Group: coordinationv1.GroupName, Resource: "leases"}
	endpointSlicesGR = resourceName{Group: discoveryv1.GroupName, Resource: "endpointslices"}
	servicesGR       = resourceName{Resource: "services"}
)

// replicaRestriction restricts the daemons of a machine to the objects of that machine, where the authorizer cannot:
// the authorizer sees neither the content of a write nor the name of a new object. It is part of NodeRestriction.
type replicaRestriction struct{ objects api.Objects }

// Validate checks writes by daemons that run on several machines, and events from kubelets and service proxies.
func (p *replicaRestriction) Validate(_ context.Context, a *api.Admission) error {
	if a.Subresource != "" {
		return nil
	}
	daemon, machine, ok := replica.Parse(a.User)
	if node, found := authz.NodeName(a.User); found && a.Resource.Resource == "events" {
		daemon, machine, ok = "", node, true
	}
	if a.User.Name == serviceProxy {
		daemon, ok = "kube-proxy", true
	}
	if !ok {
		return nil
	}
	var err error
	switch gr := a.Resource.GroupResource(); {
	case gr == leasesGR:
		err = p.checkLease(daemon, machine, a)
	case gr == endpointSlicesGR:
		err = p.checkSlice(daemon, machine, a)
	case gr == servicesGR && daemon == replica.Ingress:
		err = checkGatewayService(a)
	case gr.Resource == "events":
		err = checkEvent(daemon, machine, a)
	}
	if err != nil {
		return forbidden(a, err)
	}
	return nil
}

// maxLeaseSeconds is the longest leaseDurationSeconds of a leader election lease. A holder with a longer lease would
// block the other replicas.
const maxLeaseSeconds = 60

func (p *replicaRestriction) checkLease(daemon, machine string, a *api.Admission) error {
	own := replica.Manager(daemon) != "" && a.Name == replica.Lease(daemon, machine)
	if a.Namespace != metav1.NamespaceSystem || !own && !slices.Contains(authz.ElectionLeases(daemon), a.Name) {
		return fmt.Errorf("machine %q can only access its own lease, and those by which %s elects a leader",
			machine, daemon)
	}
	lease, ok := a.Object.(*coordinationv1.Lease)
	if !ok {
		return nil // a deletion
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	switch seconds := lease.Spec.LeaseDurationSeconds; {
	case own && holder != machine:
		return fmt.Errorf("machine %q can only hold the lease itself", machine)
	case daemon == replica.Network && holder != "" && holder != machine:
		return fmt.Errorf("machine %q can only take a lease for itself", machine)
	case !own && seconds != nil && *seconds > maxLeaseSeconds:
		return fmt.Errorf("a lease by which %s elects a leader can last %d seconds at most", daemon, maxLeaseSeconds)
	}
	return nil
}

// checkSlice allows a daemon the endpoint slices for its machine. An ingress proxy may also write the slices of
// Services that it creates for Gateways.
func (p *replicaRestriction) checkSlice(daemon, machine string, a *api.Admission) error {
	own := a.Namespace == metav1.NamespaceSystem && slices.Contains(replica.Slices(daemon, machine), a.Name)
	if !own && daemon != replica.Ingress {
		return fmt.Errorf("machine %q can only change endpoint slices of its own", machine)
	}
	for _, obj := range []any{a.Object, a.Old} {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok {
			continue // a deletion has no new object, a creation no old one
		}
		service := s.Labels[discoveryv1.LabelServiceName]
		switch {
		case own && obj == any(a.Old):
		case s.Labels[discoveryv1.LabelManagedBy] != replica.Manager(daemon):
			return fmt.Errorf("can only change endpoint slices with the label %s=%s",
				discoveryv1.LabelManagedBy, replica.Manager(daemon))
		case !own:
			if !p.isForGateway(a.Namespace, service) {
				return fmt.Errorf("service %q was not created by %s for a Gateway", service, daemon)
			}
		case service != daemon:
			return fmt.Errorf("can only publish endpoints of the service %s", daemon)
		case len(s.Endpoints) > 1 || len(s.Endpoints) == 1 &&
			(s.Endpoints[0].NodeName == nil || *s.Endpoints[0].NodeName != machine):
			return fmt.Errorf("can only publish one endpoint, with the nodeName %q", machine)
		default:
			if err := p.checkEndpoint(machine, s.Endpoints); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkEndpoint allows an endpoint only addresses of its machine and hints for its machine. With other addresses or
// hints it could receive the traffic of another machine.
func (p *replicaRestriction) checkEndpoint(machine string, list []discoveryv1.Endpoint) error {
	for _, e := range list {
		if h := e.Hints; h != nil {
			others := func(n discoveryv1.ForNode) bool { return n.Name != machine }
			if len(h.ForZones) > 0 || slices.ContainsFunc(h.ForNodes, others) {
				return fmt.Errorf("can only publish an endpoint with hints for the node %q", machine)
			}
		}
		own := p.machineAddresses(machine)
		for _, text := range e.Addresses {
			address, err := netip.ParseAddr(text)
			if err == nil && len(own) > 0 && !slices.Contains(own, address) {
				return fmt.Errorf("%s is not an address of machine %q", text, machine)
			}
		}
	}
	return nil
}

// machineAddresses returns the addresses of a machine from the inventory that apply wrote, or else from its Node. It
// returns none for a machine that is in neither.
func (p *replicaRestriction) machineAddresses(machine string) (list []netip.Addr) {
	var texts []string
	if obj, ok := p.objects.Get(configMapsGR, metav1.NamespaceSystem, inventory.Name); ok {
		if stored, isType := obj.(*corev1.ConfigMap); isType {
			var m inventory.Machine
			if err := json.Unmarshal([]byte(stored.Data[machine]), &m); err == nil {
				texts = slices.Concat(m.Addresses, m.External)
			}
		}
	}
	if obj, ok := p.objects.Get(nodesGR, "", machine); ok && len(texts) == 0 {
		if node, isType := obj.(*corev1.Node); isType {
			for _, a := range node.Status.Addresses {
				texts = append(texts, a.Address)
			}
		}
	}
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			list = append(list, address)
		}
	}
	return list
}

// isForGateway reports whether the ingress proxy created a Service for a Gateway.
func (p *replicaRestriction) isForGateway(namespace, name string) bool {
	obj, ok := p.objects.Get(servicesGR, namespace, name)
	s, isType := obj.(*corev1.Service)
	return ok && isType && s.Labels[gateway.ServiceLabel] != ""
}

// checkGatewayService allows Services of Gateways. They have type LoadBalancer, no selector and no external IPs, and
// their Gateway cannot change.
func checkGatewayService(a *api.Admission) error {
	now, _ := a.Object.(*corev1.Service)
	before, _ := a.Old.(*corev1.Service)
	for _, s := range []*corev1.Service{now, before} {
		if s != nil && s.Labels[gateway.ServiceLabel] == "" {
			return fmt.Errorf("can only change Services with the label %s", gateway.ServiceLabel)
		}
	}
	switch {
	case now == nil:
		return nil
	case before != nil && before.Labels[gateway.ServiceLabel] != now.Labels[gateway.ServiceLabel]:
		return fmt.Errorf("cannot change the label %s", gateway.ServiceLabel)
	case len(now.Spec.Selector) > 0 || len(now.Spec.ExternalIPs) > 0 || now.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return fmt.Errorf("can only write Services of type LoadBalancer, without selector and externalIPs")
	}
	return nil
}

// serviceProxy is the user of the service proxies on all machines.
const serviceProxy = "system:kube-proxy"

// checkEvent allows a daemon only events that name it as their source. The credentials of a kubelet may write events of
// any component, but only from its node.
func checkEvent(daemon, machine string, a *api.Admission) error {
	for i, obj := range []any{a.Object, a.Old} {
		var components, hosts []string
		switch e := obj.(type) {
		case *corev1.Event:
			components, hosts = []string{e.Source.Component, e.ReportingController},
				[]string{e.Source.Host, e.ReportingInstance}
		case *eventsv1.Event:
			components, hosts = []string{e.DeprecatedSource.Component, e.ReportingController},
				[]string{e.DeprecatedSource.Host, e.ReportingInstance}
		default:
			continue
		}
		switch {
		case daemon != "" && !allEqual(components, daemon, false):
			return fmt.Errorf("can only write events whose source is %s", daemon)
		case daemon == "" && !allEqual(hosts, machine, i == 0):
			return fmt.Errorf("node %q can only write events whose source is this node", machine)
		}
	}
	return nil
}

// allEqual reports whether all non-empty values equal want. If all values are empty, it returns empty.
func allEqual(values []string, want string, empty bool) bool {
	set := slices.DeleteFunc(values, func(s string) bool { return s == "" })
	return (empty || len(set) > 0) && !slices.ContainsFunc(set, func(s string) bool { return s != want })
}
