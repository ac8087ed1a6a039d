// Package flows deletes the conntrack entries of connections to endpoints that are gone, and no others.
package flows

import (
	"net/netip"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/rules"
)

// Delete deletes conntrack entries of UDP and SCTP flows to removed endpoints, and to services that had no endpoint.
// Their next packets then follow the current rules. An SCTP endpoint that gets packets of an unknown association
// rejects them, and the client starts a new association. Delete also deletes TCP entries to removed endpoints that were
// never answered. For two minutes, they would direct a client with the same port to a missing endpoint. Answered TCP
// connections may end normally.
func Delete(family nft.Family, g rules.StaleFlows) error {
	if g.IsEmpty() {
		return nil
	}
	f := &flowMatcher{removedPaths: map[flowPath]bool{}, wildcardPaths: map[flowPath]bool{},
		keptPaths: map[flowPath]bool{}}
	for _, e := range g.Endpoints {
		f.addPaths(e.Port, e.To, f.removedPaths)
	}
	for _, p := range g.Services {
		f.addPaths(p, netip.AddrPort{}, f.wildcardPaths)
		for _, to := range p.FlowEndpoints() {
			f.addPaths(p, to, f.keptPaths)
		}
	}
	return deleteFlows(family, f.isStale)
}

// synSent is the kernel's number for a TCP connection that was requested but not answered.
const synSent = 1

// flowMatcher matches flows by their original destination and their endpoint.
type flowMatcher struct {
	removedPaths  map[flowPath]bool
	wildcardPaths map[flowPath]bool // ways with any endpoint
	keptPaths     map[flowPath]bool // exceptions of all: flows to current endpoints, for example after a restart
}

// flowPath is the path from a service's address and port to an endpoint. A node port is reached at any address, so its
// address is empty.
type flowPath struct {
	proto   uint8
	via, to netip.AddrPort
}

func (f *flowMatcher) addPaths(p rules.Port, to netip.AddrPort, into map[flowPath]bool) {
	into[flowPath{p.Proto, netip.AddrPortFrom(p.ClusterIP, p.Port), to}] = true
	for _, ip := range p.External {
		into[flowPath{p.Proto, netip.AddrPortFrom(ip, p.Port), to}] = true
	}
	if p.NodePort != 0 {
		into[flowPath{p.Proto, netip.AddrPortFrom(netip.Addr{}, p.NodePort), to}] = true
	}
}

// isStale reports whether to delete a flow.
func (f *flowMatcher) isStale(current conntrackFlow) bool {
	proto, via, to := current.proto, current.destination, current.endpoint
	again := proto == nft.UDP || proto == nft.SCTP
	if !again && current.tcpState != synSent {
		return false
	}
	port := netip.AddrPortFrom(netip.Addr{}, via.Port())
	// If the rules have translated a flow, its endpoint differs from its destination.
	if via != to && (f.removedPaths[flowPath{proto, via, to}] || f.removedPaths[flowPath{proto, port, to}]) {
		return true
	}
	return again && (f.wildcardPaths[flowPath{proto: proto, via: via}] ||
		f.wildcardPaths[flowPath{proto: proto, via: port}]) &&
		!f.keptPaths[flowPath{proto, via, to}] && !f.keptPaths[flowPath{proto, port, to}]
}
