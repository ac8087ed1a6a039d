package rules

import (
	"net/netip"

	"clusterctl/daemons/nft"
)

// AddChange adds the connections that the kernel has to forget when a service's ports change from have to want. Flows
// to removed endpoints are forgotten if they are UDP or never were answered: nothing would end them, and a new flow
// from the same client port would follow them. Flows to a UDP port that gets its first endpoint are all forgotten, for
// the same reason. Associations of SCTP keep the client's port and are kept alive by heartbeats: they are forgotten
// once no endpoint slice lists their endpoint, and stay while it is listed in any condition.
func (g *StaleFlows) AddChange(have, want []Port) {
	type id struct {
		key string
		to  netip.AddrPort
	}
	still, had := map[id]bool{}, map[string]bool{}
	for i := range want {
		for _, to := range want[i].FlowEndpoints() {
			still[id{want[i].Key(), to}] = true
		}
	}
	for i := range have {
		p := &have[i]
		had[p.Key()] = len(p.Endpoints) > 0
		for _, to := range p.FlowEndpoints() {
			if !still[id{p.Key(), to}] {
				g.Endpoints = append(g.Endpoints, RemovedEndpoint{*p, to})
			}
		}
	}
	for i := range want {
		p := &want[i]
		if (p.Proto == nft.UDP || p.Proto == nft.SCTP) && len(p.Endpoints) > 0 && !had[p.Key()] {
			g.Services = append(g.Services, *p)
		}
	}
}

// FlowEndpoints returns the endpoints with which the port's flows may stay.
func (p *Port) FlowEndpoints() []netip.AddrPort {
	if p.Proto == nft.SCTP {
		return p.ListedAddresses()
	}
	var list []netip.AddrPort
	for _, e := range p.FlowTargets() {
		list = append(list, e.To)
	}
	return list
}

// StaleFlows lists the connections that the kernel must forget: those to Endpoints, and all flows to the UDP and SCTP
// ports in Services.
type StaleFlows struct {
	Endpoints []RemovedEndpoint
	Services  []Port
}

// RemovedEndpoint is an endpoint that a service's port no longer leads to.
type RemovedEndpoint struct {
	Port Port
	To   netip.AddrPort
}

// IsEmpty reports whether there is nothing to forget.
func (g *StaleFlows) IsEmpty() bool { return len(g.Endpoints)+len(g.Services) == 0 }
