// Package flows has the kernel forget what it remembers of connections to endpoints that are gone, and of no others.
package flows

import (
	"net/netip"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/rules"
)

// Delete has the kernel forget flows of UDP and SCTP to endpoints that are gone, and to services that had no endpoint:
// their next packets are routed by the rules again. An association of SCTP is refused by the endpoint that then gets
// it, and its client begins a new one. Of TCP it forgets connections to endpoints that are gone which were never
// answered: for two minutes they would take a client that comes from the same port to where nobody is. Those that were
// answered may end in peace.
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

// synSent is the kernel's number for a TCP connection that was asked for and not answered.
const synSent = 1

// flows matches flows by where they were sent to and by who answers.
type flows struct {
	left map[way]bool
	all  map[way]bool // ways without an end: whoever answers
	kept map[way]bool // but those that lead where they should, as after a restart
}

// way is from what a service's port is reached by to an endpoint. A node port is reached at any address.
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

// match reports whether a flow is to be forgotten.
func (f *flows) match(is flow) bool {
	proto, via, to := is.proto, is.asked, is.answers
	again := proto == nft.UDP || proto == nft.SCTP
	if !again && is.tcpState != synSent {
		return false
	}
	port := netip.AddrPortFrom(netip.Addr{}, via.Port())
	// A flow that the rules have sent elsewhere differs in where it went.
	if via != to && (f.left[way{proto, via, to}] || f.left[way{proto, port, to}]) {
		return true
	}
	return again && (f.all[way{proto: proto, via: via}] || f.all[way{proto: proto, via: port}]) &&
		!f.kept[way{proto, via, to}] && !f.kept[way{proto, port, to}]
}
