// Package network connects the pod networks of all machines. It writes this machine's CNI configuration, maintains
// routes to the pods of other nodes, and masquerades pods' packets to the outside. It reports in the node's status
// whether the network is available. CNI plugins assign the addresses of pods. The service proxy handles services.
package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Route is a route to the pods of another node.
type Route struct {
	To      netip.Prefix // network of the pods
	Via     netip.Addr   // address of the node
	Wrapped bool         // through the overlay, because a router is on the way that does not know the pods
	Src     netip.Addr   // source address for calls to the pods; the zero value lets the kernel choose
	node    string       // name of the node, in a plan
}

// Plan is the wanted state of this machine's network.
type Plan struct {
	PodCIDRs []netip.Prefix  // networks of this node's pods
	Routes   []Route         // sorted
	Callers  podlessMachines // machines without pods
	// Unlisted are source addresses of this machine's wrapped packets that its Node does not list. Other machines drop
	// packets from these addresses. They depend on the routes to the peers, so they are known only after the plan was
	// applied.
	Unlisted []netip.Addr

	nodeAddresses []netip.Addr // addresses of this node in its status

	peerAddresses map[string][]netip.Addr // addresses of the other nodes in their status, by name
}

// NewPlan returns the plan of one node. It omits nodes without an address or a pod network, and nodes that claim the
// pod network of another node.
func NewPlan(self string, nodes []*corev1.Node) Plan {
	var p Plan
	taken := map[netip.Prefix]bool{}
	nodes = slices.Clone(nodes)
	// If two nodes claim the same network, the older one gets it.
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
			p.PodCIDRs, p.nodeAddresses = podCIDRs(n), addressesOf(n, corev1.NodeInternalIP, corev1.NodeExternalIP)
			for _, c := range p.PodCIDRs {
				taken[c] = true
			}
		}
	}
	p.peerAddresses = map[string][]netip.Addr{}
	for _, n := range nodes {
		if n.Name == self {
			continue
		}
		p.peerAddresses[n.Name] = addressesOf(n, corev1.NodeInternalIP, corev1.NodeExternalIP)
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

// internalIPs returns the addresses with which machines reach each other.
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

// Diff returns which routes to add and remove, given the existing and the wanted routes. A route with a changed next
// hop is replaced by adding it.
func Diff(existing, want []Route) (add, remove []Route) {
	wanted := map[netip.Prefix]netip.Addr{}
	for _, r := range want {
		wanted[r.To] = r.Via
		r.node = "" // the kernel's routes have no name
		if !slices.Contains(existing, r) {
			add = append(add, r)
		}
	}
	for _, r := range existing {
		if _, ok := wanted[r.To]; !ok {
			remove = append(remove, r)
		}
	}
	return add, remove
}

// podMTU returns the MTU of the interfaces of pods: the configured one, or else the smaller one of the machine's own
// interface and of the overlay. Zero means unknown: the kernel's default remains.
func podMTU(configured, machine, overlay int) int {
	switch {
	case configured != 0:
		return configured
	case overlay > 0 && (machine == 0 || overlay < machine):
		return overlay
	}
	return machine
}

// Conflist renders the CNI configuration of a node: a pair of interfaces for each pod with an address of each of the
// node's networks, host ports, and the bandwidth from the pods' annotations.
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
