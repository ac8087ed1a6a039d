package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	serviceCIDRsGR = resourceName{Group: networkingv1.GroupName, Resource: "servicecidrs"}
	configMapsGR   = resourceName{Resource: "configmaps"}
)

// externalIPs rejects Services whose external IPs are addresses of the cluster. Otherwise any author of Services could
// receive the traffic for these addresses (CVE-2020-8554). External IPs that a Service already has are not checked.
type externalIPs struct {
	objects         api.Objects
	extraRestricted []netip.Prefix // from flags, in addition to addresses found in objects
	allowed         []netip.Prefix // from flags; exempt from the check
}

func newExternalIPs(cfg config.APIServer, objects api.Objects) (*externalIPs, error) {
	p := &externalIPs{objects: objects}
	for _, list := range []struct {
		name string
		from []string
		to   *[]netip.Prefix
	}{
		{"--service-cluster-ip-range", cfg.ServiceClusterIPRange, &p.extraRestricted},
		{"--restricted-external-ips", cfg.RestrictedExternalIPs, &p.extraRestricted},
		{"--advertise-address", []string{cfg.AdvertiseAddress}, &p.extraRestricted},
		{"--allowed-external-ips", cfg.AllowedExternalIPs, &p.allowed},
	} {
		for _, text := range list.from {
			if text == "" {
				continue
			}
			prefix, err := parseNetwork(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list.name, err)
			}
			*list.to = append(*list.to, prefix)
		}
	}
	return p, nil
}

// parseNetwork parses a CIDR. A plain address is the network that contains only this address.
func parseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}

// Validate checks the number of rules that a Service needs, and the external IPs that the write adds.
func (p *externalIPs) Validate(_ context.Context, a *api.Admission) error {
	if n := combinations(a.Object); n > maxCombinations && n > combinations(a.Old) {
		return forbidden(a, fmt.Errorf("its ports have %d combinations with spec.externalIPs and "+
			"spec.loadBalancerSourceRanges; every node has rules for each, and at most %d are allowed", n,
			maxCombinations))
	}
	added := addedExternalIPs(a)
	if len(added) == 0 {
		return nil
	}
	whose := p.networkLookup()
	for _, i := range slices.Sorted(maps.Keys(added)) {
		ip, err := netip.ParseAddr(added[i])
		if err != nil || containsAddress(p.allowed, ip.Unmap()) {
			continue // validation rejects invalid addresses
		}
		if what := whose(ip.Unmap()); what != "" {
			return forbidden(a, fmt.Errorf("spec.externalIPs[%d]: %s is %s", i, ip, what))
		}
	}
	return nil
}

// maxCombinations limits the rules that every node needs for the addresses of one Service.
const maxCombinations = 10_000

// combinations returns the number of combinations of ports and addresses of a Service. A headless Service without ports
// counts as one port, because ports can be added later.
func combinations(obj runtime.Object) int {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return 0
	}
	return max(len(s.Spec.Ports), 1) * (len(s.Spec.ExternalIPs) + len(s.Spec.LoadBalancerSourceRanges))
}

// addedExternalIPs returns the external IPs that a write adds to a Service, by their index in spec.externalIPs.
func addedExternalIPs(a *api.Admission) map[int]string {
	if !isOperation(a, "CREATE", servicesGR) && !isOperation(a, "UPDATE", servicesGR) {
		return nil
	}
	s, ok := a.Object.(*corev1.Service)
	if !ok || len(s.Spec.ExternalIPs) == 0 {
		return nil
	}
	before := map[string]bool{}
	if former, ok := a.Old.(*corev1.Service); ok {
		for _, ip := range former.Spec.ExternalIPs {
			before[ip] = true
		}
	}
	added := map[int]string{}
	for i, ip := range s.Spec.ExternalIPs {
		if !before[ip] {
			added[i] = ip
		}
	}
	return added
}

func containsAddress(list []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// networkLookup returns a function that describes which part of the cluster an address belongs to, or returns "" if
// none. The stored objects are read once, because one Service may have many addresses.
func (p *externalIPs) networkLookup() func(ip netip.Addr) string {
	own := map[netip.Addr]string{}
	var networks []ownNetwork
	one := func(text, what string) {
		if a, err := netip.ParseAddr(text); err == nil {
			own[a.Unmap()] = what
		}
	}
	all := func(text, what string) {
		if n, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, ownNetwork{n, what})
		}
	}
	pools := p.eachInventoryAddress(one)
	for _, obj := range p.objects.List(nodesGR, "") {
		n, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}
		for _, a := range n.Status.Addresses {
			one(a.Address, "an address of node "+n.Name)
		}
		for _, cidr := range n.Spec.PodCIDRs {
			all(cidr, "in the pod network of node "+n.Name)
		}
	}
	for _, obj := range p.objects.List(serviceCIDRsGR, "") {
		if c, ok := obj.(*networkingv1.ServiceCIDR); ok {
			for _, cidr := range c.Spec.CIDRs {
				all(cidr, "in the service range "+c.Name)
			}
		}
	}
	for _, obj := range p.objects.List(endpointSlicesGR, metav1.NamespaceDefault) {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || s.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
			continue
		}
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				one(address, "an address of an API server")
			}
		}
	}
	return func(ip netip.Addr) string {
		if containsAddress(p.extraRestricted, ip) {
			return "in a network of the cluster, or an address of its API"
		}
		if what := own[ip]; what != "" {
			return what
		}
		if i := slices.IndexFunc(networks, func(n ownNetwork) bool { return n.Contains(ip) }); i >= 0 {
			return networks[i].description
		}
		for _, pool := range pools {
			if slices.ContainsFunc(pool.Ranges, func(r config.Range) bool { return r.Contains(ip) }) {
				return "in the load balancer pool " + pool.Name
			}
		}
		return ""
	}
}

// ownNetwork is a network of the cluster with its description.
type ownNetwork struct {
	netip.Prefix
	description string
}

// eachInventoryAddress calls one for each address in the machine inventory, and returns the load balancer pools. Data
// that cannot be decoded is ignored: only administrators can write these ConfigMaps.
func (p *externalIPs) eachInventoryAddress(one func(text, what string)) []config.Pool {
	data := func(name string) map[string]string {
		obj, ok := p.objects.Get(configMapsGR, metav1.NamespaceSystem, name)
		if m, isType := obj.(*corev1.ConfigMap); ok && isType {
			return m.Data
		}
		return nil
	}
	if machines, err := inventory.Decode(data(inventory.Name)); err == nil {
		for name, m := range machines {
			for _, address := range slices.Concat(m.Addresses, m.External) {
				one(address, "an address of machine "+name)
			}
		}
	}
	pools, err := config.DecodePools(data(config.PoolsName))
	if err != nil {
		return nil
	}
	return pools
}

// denyExternalIPsName is the plugin's name in --enable-admission-plugins. The plugin is disabled by default.
const denyExternalIPsName = "DenyServiceExternalIPs"

// denyExternalIPs rejects every external IP that a write adds to a Service.
type denyExternalIPs struct{}

// Validate rejects a write that adds external IPs to a Service.
func (denyExternalIPs) Validate(_ context.Context, a *api.Admission) error {
	if len(addedExternalIPs(a)) > 0 {
		//lint:ignore ST1005 Kubernetes answers with this text.
		return forbidden(a, errors.New("Use of external IPs is denied by admission control."))
	}
	return nil
}
