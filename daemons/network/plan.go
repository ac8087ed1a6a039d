// Package network joins the pod networks of all machines: it writes this machine's
// CNI configuration, keeps a route to every other node's pods, has pods' packets to
// the outside leave under the node's address, and then says that the node's network is
// there. Addresses of pods are the CNI plugins' business, services the proxy's.
package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Route leads to the pods of another node.
type Route struct {
	To      netip.Prefix // the pods
	Via     netip.Addr   // the node
	Wrapped bool         // a router is on the way, which does not know where pods are
	Src     netip.Addr   // under which address this machine calls the pods; none: the kernel's choice
	node    string       // its name, in a plan
}

// Plan is what this machine's network should be.
type Plan struct {
	PodCIDRs []netip.Prefix // of this node's pods
	Routes   []Route        // sorted
	Callers  callers        // machines without pods
	// Unlisted are addresses under which this machine sends wrapped packets and of which others do not know that they
	// are its own: they drop what comes from there. A route to some machine says which they are, so that they are known
	// once the plan is carried out.
	Unlisted []netip.Addr

	listed []netip.Addr // what this node says of where it is

	at map[string][]netip.Addr // all that other nodes say of where they are, by name
}

// Make works out the plan of one node from all nodes. A node without an address or
// a pod network is left out, as is one that claims what is another's.
func Make(self string, nodes []*corev1.Node) Plan {
	var p Plan
	taken := map[netip.Prefix]bool{}
	nodes = slices.Clone(nodes)
	// Of two nodes that claim the same network the older one has it.
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	for _, n := range nodes {
		if n.Name == self {
			p.PodCIDRs, p.listed = podCIDRs(n), addressesOf(n, corev1.NodeInternalIP, corev1.NodeExternalIP)
			for _, c := range p.PodCIDRs {
				taken[c] = true
			}
		}
	}
	p.at = map[string][]netip.Addr{}
	for _, n := range nodes {
		if n.Name == self {
			continue
		}
		p.at[n.Name] = addressesOf(n, corev1.NodeInternalIP, corev1.NodeExternalIP)
		for _, to := range podCIDRs(n) {
			via, ok := internalIP(n, to.Addr().Is4())
			if !ok || taken[to] {
				continue
			}
			taken[to] = true
			p.Routes = append(p.Routes, Route{To: to, Via: via, node: n.Name})
		}
	}
	slices.SortFunc(p.Routes, func(a, b Route) int { return a.To.Addr().Compare(b.To.Addr()) })
	return p
}

func podCIDRs(n *corev1.Node) []netip.Prefix {
	list := n.Spec.PodCIDRs
	if len(list) == 0 && n.Spec.PodCIDR != "" {
		list = []string{n.Spec.PodCIDR}
	}
	var prefixes []netip.Prefix
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil {
			prefixes = append(prefixes, p.Masked())
		}
	}
	return prefixes
}

// internalIPs are the addresses by which machines reach each other.
func internalIPs(n *corev1.Node) []netip.Addr { return addressesOf(n, corev1.NodeInternalIP) }

func addressesOf(n *corev1.Node, kinds ...corev1.NodeAddressType) (list []netip.Addr) {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && slices.Contains(kinds, a.Type) {
			list = append(list, ip.Unmap())
		}
	}
	return list
}

func internalIP(n *corev1.Node, v4 bool) (netip.Addr, bool) {
	list := internalIPs(n)
	at := slices.IndexFunc(list, func(ip netip.Addr) bool { return ip.Is4() == v4 })
	if at < 0 {
		return netip.Addr{}, false
	}
	return list[at], true
}

// Diff returns what has to be added to and removed from the routes that there are.
// A route that leads another way is replaced by adding it.
func Diff(have, want []Route) (add, remove []Route) {
	wanted := map[netip.Prefix]netip.Addr{}
	for _, r := range want {
		wanted[r.To] = r.Via
		r.node = "" // the kernel does not know it
		if !slices.Contains(have, r) {
			add = append(add, r)
		}
	}
	for _, r := range have {
		if _, ok := wanted[r.To]; !ok {
			remove = append(remove, r)
		}
	}
	return add, remove
}

// Conflist renders the CNI configuration of a node: a pair of interfaces for each pod, with an address of each of the
// node's networks, host ports, and the bandwidth that annotations of pods name.
func Conflist(pods []netip.Prefix, mtu int) ([]byte, error) {
	if len(pods) == 0 {
		return nil, fmt.Errorf("render the CNI configuration: the node has no pod network")
	}
	type object = map[string]any
	var ranges [][]object
	for _, p := range pods {
		ranges = append(ranges, []object{{"subnet": p.String()}})
	}
	pair := object{"type": "podlink", "ipam": object{"type": "host-local", "ranges": ranges}}
	if mtu > 0 {
		pair["mtu"] = mtu
	}
	out, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0", "name": "clusterctl",
		"plugins": []object{pair, {"type": "portmap", "capabilities": object{"portMappings": true}},
			{"type": "bandwidth", "capabilities": object{"bandwidth": true}}},
	}, "", "  ")
	return append(out, '\n'), err
}
