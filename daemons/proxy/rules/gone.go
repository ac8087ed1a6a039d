package rules

import (
	"net/netip"

	"clusterctl/daemons/nft"
)

// Gone adds what the kernel has to forget of connections when a service's ports change: to endpoints that are no more, those that were
// never answered, and all of UDP, since no packet of theirs ever says that the connection is over, and a new one from the same port would
// be sent after the old one. To UDP ports that had no endpoint and get one, all, for the same reason.
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

// Forget is connections that the kernel has to forget: from a service's port to an endpoint, and to whatever a UDP port leads to.
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
