package network

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config/inventory"
)

// callers are the machines that have no pods and call them: the API server of a control plane that is no node calls
// webhooks.
type callers struct {
	// there is an inventory that can be read; without one nothing is taken from those that were there before
	known bool
	own   []netip.Addr // this machine's addresses, when it is one of them
	far   []caller     // the others, by name
}

// caller is one of them, and its addresses, those of IPv4 first.
type caller struct {
	name string
	at   []netip.Addr
}

// callersOf reads them from the inventory, which is the administrator's. An address that a Node has is that Node's:
// what goes to pods there does not change by what somebody has forgotten in the inventory.
func callersOf(self string, list inventory.Inventory, nodes []*corev1.Node) callers {
	c := callers{known: list != nil}
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
		m := caller{name: name}
		for _, text := range list[name].Addresses {
			if a, err := netip.ParseAddr(text); err == nil && !taken[a.Unmap()] {
				taken[a.Unmap()] = true
				m.at = append(m.at, a.Unmap())
			}
		}
		slices.SortStableFunc(m.at, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
		if name == self {
			c.own = m.at
		} else if len(m.at) > 0 {
			c.far = append(c.far, m)
		}
	}
	return c
}

// answered are the addresses of callers behind a router that this machine's pods answer through the overlay, by name of
// the caller: those of families that the pods have.
func (p *Plan) answered(ways []way) map[string][]netip.Addr {
	list := map[string][]netip.Addr{}
	for _, c := range p.Callers.far {
		for _, a := range c.at {
			if p.family(a) && !onLink(ways, a) {
				list[c.name] = append(list[c.name], a)
			}
		}
	}
	return list
}

// family reports whether this machine's pods have addresses of an address's family.
func (p *Plan) family(a netip.Addr) bool {
	return slices.ContainsFunc(p.PodCIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() == a.Is4() })
}

// source is the address from which this machine, when it has no pods of its own, calls pods at another one through the
// overlay. It returns the zero address when the machine has pods: the kernel then chooses an address of their network.
func (p *Plan) source(via netip.Addr, here func(netip.Addr) bool) netip.Addr {
	if len(p.PodCIDRs) > 0 {
		return netip.Addr{}
	}
	at := slices.IndexFunc(p.Callers.own, func(a netip.Addr) bool { return a.Is4() == via.Is4() && here(a) })
	if at < 0 {
		return netip.Addr{}
	}
	return p.Callers.own[at]
}

// mute reports whether this machine calls pods behind a router that have no route back to it.
func (p *Plan) mute() bool {
	return len(p.PodCIDRs) == 0 &&
		slices.ContainsFunc(p.Routes, func(r Route) bool { return r.Wrapped && !r.Src.IsValid() })
}
