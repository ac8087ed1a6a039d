package rules

import (
	"net/netip"

	"clusterctl/daemons/nft"
)

// Gone adds the connections that the kernel has to forget when a service's ports change from have to want. Flows to removed endpoints are
// forgotten if they are UDP or never were answered: nothing would end them, and a new flow from the same client port would follow them.
// Flows to a UDP port that gets its first endpoint are all forgotten, for the same reason.
func (g *Forget) Gone(have, want []Port) {
	type id struct {
		key string
		to  netip.AddrPort
	}
	still, had := map[id]bool{}, map[string]bool{}
	for i := range want {
		for _, e := range want[i].Alive() {
			still[id{want[i].Key(), e.To}] = true
		}
	}
	for i := range have {
		p := &have[i]
		had[p.Key()] = len(p.Endpoints) > 0
		for _, e := range p.Alive() {
			if !still[id{p.Key(), e.To}] {
				g.Endpoints = append(g.Endpoints, Left{*p, e.To})
			}
		}
	}
	for i := range want {
		p := &want[i]
		if p.Proto == nft.UDP && len(p.Endpoints) > 0 && !had[p.Key()] {
			g.Services = append(g.Services, *p)
		}
	}
}

// Forget lists connections that the kernel has to forget: those of Endpoints, and all flows to the UDP ports in Services.
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
