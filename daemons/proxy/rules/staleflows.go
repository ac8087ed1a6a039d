package rules

import (
	"net/netip"

	"clusterctl/daemons/nft"
)

// AddChange adds the conntrack entries to delete when a service's ports change from existing to want. Entries of flows
// to removed endpoints are deleted if the flow is UDP or was never answered: nothing would end the flow, and a new flow
// from the same client port would use its entry. For the same reason, all entries are deleted of flows to a UDP port
// that gets its first endpoint. SCTP associations keep the client's port and are kept alive by heartbeats. Their
// entries are deleted once no endpoint slice lists the endpoint. They stay while it is listed in any condition.
func (g *StaleFlows) AddChange(existing, want []Port) {
	type id struct {
		key string
		to  netip.AddrPort
	}
	still, before := map[id]bool{}, map[string]bool{}
	for i := range want {
		for _, to := range want[i].FlowEndpoints() {
			still[id{want[i].Key(), to}] = true
		}
	}
	for i := range existing {
		p := &existing[i]
		before[p.Key()] = len(p.Endpoints) > 0
		for _, to := range p.FlowEndpoints() {
			if !still[id{p.Key(), to}] {
				g.Endpoints = append(g.Endpoints, RemovedEndpoint{*p, to})
			}
		}
	}
	for i := range want {
		p := &want[i]
		if (p.Proto == nft.UDP || p.Proto == nft.SCTP) && len(p.Endpoints) > 0 && !before[p.Key()] {
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

// StaleFlows lists the flows whose conntrack entries must be deleted: those to Endpoints, and all flows to the UDP and
// SCTP ports in Services.
type StaleFlows struct {
	Endpoints []RemovedEndpoint
	Services  []Port
}

// RemovedEndpoint is an endpoint that a service's port no longer leads to.
type RemovedEndpoint struct {
	Port Port
	To   netip.AddrPort
}

// IsEmpty reports whether there are no entries to delete.
func (g *StaleFlows) IsEmpty() bool { return len(g.Endpoints)+len(g.Services) == 0 }
