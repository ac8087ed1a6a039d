package admission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
	"clusterctl/daemons/config"
	"clusterctl/daemons/config/inventory"
)

var (
	serviceCIDRsGR = resource{Group: networkingv1.GroupName, Resource: "servicecidrs"}
	configMapsGR   = resource{Resource: "configmaps"}
)

// externalIPs refuses external IPs of Services that are the cluster's own: whoever may write a Service would get what others send
// there (CVE-2020-8554). External IPs that a Service already has are left alone.
type externalIPs struct {
	objects    api.Objects
	restricted []netip.Prefix // besides what objects say
	allowed    []netip.Prefix // although they are the cluster's own
}

func newExternalIPs(cfg config.APIServer, objects api.Objects) (*externalIPs, error) {
	p := &externalIPs{objects: objects}
	for _, list := range []struct {
		name string
		from []string
		to   *[]netip.Prefix
	}{
		{"--service-cluster-ip-range", cfg.ServiceClusterIPRange, &p.restricted}, {"--restricted-external-ips", cfg.RestrictedExternalIPs, &p.restricted},
		{"--advertise-address", []string{cfg.AdvertiseAddress}, &p.restricted}, {"--allowed-external-ips", cfg.AllowedExternalIPs, &p.allowed},
	} {
		for _, text := range list.from {
			if text == "" {
				continue
			}
			prefix, err := network(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list.name, err)
			}
			*list.to = append(*list.to, prefix)
		}
	}
	return p, nil
}

// network reads a network, or an address as the network of it alone.
func network(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}

// Validate looks at the external IPs that a write adds to a Service.
func (p *externalIPs) Validate(_ context.Context, a *api.Admission) error {
	if n := combinations(a.Object); n > maxCombinations && n > combinations(a.Old) {
		return forbidden(a, fmt.Errorf("its ports have %d combinations with spec.externalIPs and spec.loadBalancerSourceRanges; every node has rules for each, and at most %d are allowed", n, maxCombinations))
	}
	for i, text := range addedExternalIPs(a) {
		ip, err := netip.ParseAddr(text)
		if err != nil || within(p.allowed, ip.Unmap()) {
			continue // validation refuses what is no address
		}
		if whose := p.whose(ip.Unmap()); whose != "" {
			return forbidden(a, fmt.Errorf("spec.externalIPs[%d]: %s is %s", i, ip, whose))
		}
	}
	return nil
}

// maxCombinations bounds the rules that every node has for the addresses of one Service.
const maxCombinations = 10_000

// combinations returns how many combinations of ports and addresses a Service has.
func combinations(obj runtime.Object) int {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return 0
	}
	return len(s.Spec.Ports) * (len(s.Spec.ExternalIPs) + len(s.Spec.LoadBalancerSourceRanges))
}

// addedExternalIPs returns the external IPs of a Service by their index, without those that it had before.
func addedExternalIPs(a *api.Admission) map[int]string {
	if !is(a, "CREATE", servicesGR) && !is(a, "UPDATE", servicesGR) {
		return nil
	}
	s, ok := a.Object.(*corev1.Service)
	if !ok || len(s.Spec.ExternalIPs) == 0 {
		return nil
	}
	had := map[string]bool{}
	if was, ok := a.Old.(*corev1.Service); ok {
		for _, ip := range was.Spec.ExternalIPs {
			had[ip] = true
		}
	}
	added := map[int]string{}
	for i, ip := range s.Spec.ExternalIPs {
		if !had[ip] {
			added[i] = ip
		}
	}
	return added
}

func within(list []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// whose returns what of the cluster's own an address is, or "" if it is none.
func (p *externalIPs) whose(ip netip.Addr) string {
	if within(p.restricted, ip) {
		return "in a network of the cluster, or an address of its API"
	}
	same := func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && a.Unmap() == ip
	}
	holds := func(text string) bool {
		n, err := netip.ParsePrefix(text)
		return err == nil && n.Contains(ip)
	}
	for _, obj := range p.objects.List(nodesGR, "") {
		n, ok := obj.(*corev1.Node)
		switch {
		case !ok:
		case slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return same(a.Address) }):
			return "an address of node " + n.Name
		case slices.ContainsFunc(n.Spec.PodCIDRs, holds):
			return "in the network of the pods of node " + n.Name
		}
	}
	for _, obj := range p.objects.List(serviceCIDRsGR, "") {
		if c, ok := obj.(*networkingv1.ServiceCIDR); ok && slices.ContainsFunc(c.Spec.CIDRs, holds) {
			return "in the range of Services " + c.Name
		}
	}
	for _, obj := range p.objects.List(endpointSlicesGR, metav1.NamespaceDefault) {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || s.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
			continue
		}
		if slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return slices.ContainsFunc(e.Addresses, same) }) {
			return "an address of an API server"
		}
	}
	return p.declared(ip, same)
}

// declared returns what of the machines and pools that clusterctl has declared an address is. What cannot be read restricts
// nothing: the ConfigMaps are written by administrators only.
func (p *externalIPs) declared(ip netip.Addr, same func(string) bool) string {
	data := func(name string) map[string]string {
		obj, ok := p.objects.Get(configMapsGR, metav1.NamespaceSystem, name)
		if m, is := obj.(*corev1.ConfigMap); ok && is {
			return m.Data
		}
		return nil
	}
	if machines, err := inventory.Decode(data(inventory.Name)); err == nil {
		for name, m := range machines {
			if slices.ContainsFunc(slices.Concat(m.Addresses, m.External), same) {
				return "an address of machine " + name
			}
		}
	}
	if pools, err := config.DecodePools(data(config.PoolsName)); err == nil {
		for _, pool := range pools {
			if slices.ContainsFunc(pool.Ranges, func(r config.Range) bool { return r.Contains(ip) }) {
				return "of the load balancers' pool " + pool.Name
			}
		}
	}
	return ""
}

// denyExternalIPsName is the plugin's name in --enable-admission-plugins: it is not one of the default ones.
const denyExternalIPsName = "DenyServiceExternalIPs"

// denyExternalIPs refuses all external IPs that a Service does not already have.
type denyExternalIPs struct{}

// Validate looks at the external IPs that a write adds to a Service.
func (denyExternalIPs) Validate(_ context.Context, a *api.Admission) error {
	if len(addedExternalIPs(a)) > 0 {
		return forbidden(a, errors.New("Use of external IPs is denied by admission control.")) //nolint:staticcheck // upstream's text
	}
	return nil
}
