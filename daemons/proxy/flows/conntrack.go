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
func Delete(family nft.Family, g rules.Forget) error {
	if g.Empty() {
		return nil
	}
	f := &flows{left: map[way]bool{}, all: map[way]bool{}, kept: map[way]bool{}}
	for _, e := range g.Endpoints {
		f.ways(e.Port, e.To, f.left)
	}
	for _, p := range g.Services {
		f.ways(p, netip.AddrPort{}, f.all)
		for _, to := range p.FlowsTo() {
			f.ways(p, to, f.kept)
		}
	}
	return remove(family, f.match)
}

// synSent is the kernel's number for a TCP connection that was requested but not answered.
const synSent = 1

// flows matches flows by their original destination and their endpoint.
type flows struct {
	left map[way]bool
	all  map[way]bool // ways with any endpoint
	kept map[way]bool // exceptions of all: flows to current endpoints, for example after a restart
}

// way is the path from a service's address and port to an endpoint. A node port is reached at any address, so its
// address is empty.
type way struct {
	proto   uint8
	via, to netip.AddrPort
}

func (f *flows) ways(p rules.Port, to netip.AddrPort, into map[way]bool) {
	into[way{p.Proto, netip.AddrPortFrom(p.ClusterIP, p.Port), to}] = true
	for _, ip := range p.External {
		into[way{p.Proto, netip.AddrPortFrom(ip, p.Port), to}] = true
	}
	if p.NodePort != 0 {
		into[way{p.Proto, netip.AddrPortFrom(netip.Addr{}, p.NodePort), to}] = true
	}
}

// match reports whether to delete a flow.
func (f *flows) match(is flow) bool {
	proto, via, to := is.proto, is.asked, is.answers
	again := proto == nft.UDP || proto == nft.SCTP
	if !again && is.tcpState != synSent {
		return false
	}
	port := netip.AddrPortFrom(netip.Addr{}, via.Port())
	// If the rules have translated a flow, its endpoint differs from its destination.
	if via != to && (f.left[way{proto, via, to}] || f.left[way{proto, port, to}]) {
		return true
	}
	return again && (f.all[way{proto: proto, via: via}] || f.all[way{proto: proto, via: port}]) &&
		!f.kept[way{proto, via, to}] && !f.kept[way{proto, port, to}]
}
