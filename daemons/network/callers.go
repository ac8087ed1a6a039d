package network

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config/inventory"
)

// podlessMachines are the machines that have no pods but call pods. For example, the API server on a control plane
// machine without a kubelet calls webhooks.
type podlessMachines struct {
	// whether an inventory could be read; without one, nothing is removed
	isKnown bool
	local   []netip.Addr     // addresses of this machine, if it is a caller
	others  []podlessMachine // the other callers, sorted by name
}

// podlessMachine is a machine without pods. Its IPv4 addresses come first.
type podlessMachine struct {
	name      string
	addresses []netip.Addr
}

// findPodless returns the callers according to the administrator's inventory. An address that a Node has belongs to
// that Node, so that an outdated inventory cannot redirect packets of its pods.
func findPodless(self string, list inventory.Inventory, nodes []*corev1.Node) podlessMachines {
	c := podlessMachines{isKnown: list != nil}
	taken, pods := map[netip.Addr]bool{}, map[string]bool{}
	for _, n := range nodes {
		if len(podCIDRs(n)) == 0 {
			continue
		}
		pods[n.Name] = true
		for _, a := range internalIPs(n) {
			taken[a] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if pods[name] {
			continue
		}
		m := podlessMachine{name: name}
		for _, text := range list[name].Addresses {
			if a, err := netip.ParseAddr(text); err == nil && !taken[a.Unmap()] {
				taken[a.Unmap()] = true
				m.addresses = append(m.addresses, a.Unmap())
			}
		}
		slices.SortStableFunc(m.addresses, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
		if name == self {
			c.local = m.addresses
		} else if len(m.addresses) > 0 {
			c.others = append(c.others, m)
		}
	}
	return c
}

// addressesBehindRouters returns the addresses of callers behind a router, by name of the caller. This machine's pods
// respond to them through the overlay. It includes only families that the pods have.
func (p *Plan) addressesBehindRouters(ways []machineRoute) map[string][]netip.Addr {
	list := map[string][]netip.Addr{}
	for _, c := range p.Callers.others {
		for _, a := range c.addresses {
			if p.hasFamily(a) && !isOnLink(ways, a) {
				list[c.name] = append(list[c.name], a)
			}
		}
	}
	return list
}

// hasFamily reports whether this machine's pods have addresses of the family of a.
func (p *Plan) hasFamily(a netip.Addr) bool {
	return slices.ContainsFunc(p.PodCIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() == a.Is4() })
}

// callSource returns the address with which this machine, if it has no pods, calls pods through the overlay. It returns
// the zero address if the machine has pods, because the kernel then chooses an address of their network.
func (p *Plan) callSource(via netip.Addr, here func(netip.Addr) bool) netip.Addr {
	if len(p.PodCIDRs) > 0 {
		return netip.Addr{}
	}
	at := slices.IndexFunc(p.Callers.local, func(a netip.Addr) bool { return a.Is4() == via.Is4() && here(a) })
	if at < 0 {
		return netip.Addr{}
	}
	return p.Callers.local[at]
}

// isUnanswered reports whether this machine calls pods behind a router that have no route back to it.
func (p *Plan) isUnanswered() bool {
	return len(p.PodCIDRs) == 0 &&
		slices.ContainsFunc(p.Routes, func(r Route) bool { return r.Wrapped && !r.Src.IsValid() })
}
