package rules

import (
	"net/netip"

	"clusterctl/daemons/nft"
)

// Gone adds the connections that the kernel has to forget when a service's ports change from have to want. Flows to
// removed endpoints are forgotten if they are UDP or never were answered: nothing would end them, and a new flow from
// the same client port would follow them. Flows to a UDP port that gets its first endpoint are all forgotten, for the
// same reason. Associations of SCTP keep the client's port and are kept alive by heartbeats: they are forgotten once no
// endpoint slice lists their endpoint, and stay while it is listed in any condition.
func (g *Forget) Gone(have, want []Port) {
	type id struct {
		key string
		to  netip.AddrPort
	}
	still, had := map[id]bool{}, map[string]bool{}
	for i := range want {
		for _, to := range want[i].FlowsTo() {
			still[id{want[i].Key(), to}] = true
		}
	}
	for i := range have {
		p := &have[i]
		had[p.Key()] = len(p.Endpoints) > 0
		for _, to := range p.FlowsTo() {
			if !still[id{p.Key(), to}] {
				g.Endpoints = append(g.Endpoints, Left{*p, to})
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

// FlowsTo returns the endpoints with which the port's flows may stay.
func (p *Port) FlowsTo() []netip.AddrPort {
	if p.Proto == nft.SCTP {
		return p.Listed()
	}
	var list []netip.AddrPort
	for _, e := range p.Alive() {
		list = append(list, e.To)
	}
	return list
}

// Forget lists the connections that the kernel must forget: those to Endpoints, and all flows to the UDP and SCTP ports
// in Services.
type Forget struct {
	Endpoints []Left
	Services  []Port
}

// Left is an endpoint that a service's port no longer leads to.
type Left struct {
	Port Port
	To   netip.AddrPort
}

// Empty reports whether there is nothing to forget.
func (g *Forget) Empty() bool { return len(g.Endpoints)+len(g.Services) == 0 }
