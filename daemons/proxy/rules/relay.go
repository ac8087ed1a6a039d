package rules

import (
	"net/netip"
	"slices"

	"clusterctl/daemons/nft"
)

// Relay holds the ports of this machine at which the proxy accepts packets for a service port: Inside for packets to
// the cluster IP, Outside for other addresses. With 0, the kernel forwards the packets.
type Relay struct{ Inside, Outside uint16 }

// NewRelayTable returns a family's table for userspace mode. The proxy accepts TCP at the port tcp, and UDP at the
// Relay ports of each service port.
func NewRelayTable(f nft.Family, m Machine, tcp uint16) (*Table, error) {
	only := m.withFamily(f)
	table, err := nft.NewTable(f, TableName, baseFragment(f, only, m.hasNoNodePorts(f), tcp))
	if err != nil {
		return nil, err
	}
	return &Table{Table: table, destinationClaims: newDestinationClaims(m), machine: only}, nil
}

// addRelay adds the rules of userspace mode to the base. They reject packets that were sent directly to the proxy's
// ports, because such packets would bypass the services' rules.
func addRelay(f *nft.Fragment, tcp uint16) {
	f.Sets[relaySet] = nft.Set{Key: portKey}
	f.Elements = map[string][]nft.Element{relaySet: {{Key: nft.Key{Protocol: nft.TCP, Port: tcp}}}}
	f.Chains[relayTCP] = nft.Chain{Rules: []nft.Rule{{nft.IsProtocol{Protocol: nft.TCP}, nft.Redirect{Port: tcp}}}}
	f.Chains[relayInput] = nft.Chain{Hook: &nft.Hook{Type: "filter", Name: "input"}, Rules: []nft.Rule{
		{
			nft.InSet{Set: relaySet, Key: portKey},
			nft.Untranslated{},
			nft.Decide{Verdict: nft.Verdict{Action: "goto", Chain: rejectChain}},
		}}}
}

// addRelayed adds the rules of a port that the proxy forwards. Access restrictions and ports without endpoints are
// still handled by rules.
func (b *builder) addRelayed(p *Port, put func(string, nft.Key, nft.Value) bool) {
	if p.InternalLocal && len(p.LocalEndpoints) == 0 {
		put(noEndpointMap, p.clusterKey(), nft.VerdictValue("drop", ""))
	} else {
		put(serviceMap, p.clusterKey(), nft.VerdictValue("goto", b.relayChain(p, p.Relay.Inside, "relay")))
	}
	if len(p.External) == 0 && p.NodePort == 0 {
		return
	}
	to := b.relayChain(p, p.Relay.Outside, "relayoutside")
	everywhere := nft.Decide{Verdict: nft.Verdict{Action: "goto", Chain: to}}
	list := b.firewallRules(p)
	if p.ExternalLocal && len(p.LocalEndpoints) == 0 {
		for _, n := range b.machine.Pods {
			list = append(list, nft.Rule{nft.FromNet{Net: n}, everywhere})
		}
		list = append(list, nft.Rule{nft.FromLocal{}, everywhere},
			nft.Rule{nft.Decide{Verdict: nft.Verdict{Action: "drop"}}})
	} else if len(list) > 0 {
		list = append(list, nft.Rule{everywhere})
	}
	if len(list) > 0 {
		to = p.chainName("external")
		b.Chains[to] = nft.Chain{Rules: list}
	}
	for _, d := range p.externalKeys() {
		put(serviceMap, d, nft.VerdictValue("goto", to))
	}
	if p.NodePort != 0 {
		put(nodePortMap, p.nodePortKey(), nft.VerdictValue("goto", to))
	}
}

// relayChain returns the chain that redirects to a port of the proxy.
func (b *builder) relayChain(p *Port, port uint16, kind string) string {
	if p.Proto == nft.TCP {
		return relayTCP
	}
	if port == p.Relay.Inside {
		kind = "relay"
	}
	name := p.chainName(kind)
	b.Chains[name] = nft.Chain{Rules: []nft.Rule{{nft.IsProtocol{Protocol: p.Proto}, nft.Redirect{Port: port}}}}
	e := nft.Element{Key: nft.Key{Protocol: p.Proto, Port: port}}
	if !slices.Contains(b.Elements[relaySet], e) {
		b.addElement(relaySet, e)
	}
	return name
}

// Candidates states to which endpoints the proxy may forward a connection.
type Candidates struct {
	Key       string // identifies what is selected in turn
	Endpoints []Endpoint
	Affinity  int32 // seconds
}

// Lookup returns the endpoints for a client and a destination. It returns false if the destination belongs to no
// service. local reports whether an address belongs to this machine.
func (t *Table) Lookup(proto uint8, to netip.AddrPort, client netip.Addr, local func(netip.Addr) bool) (Candidates,
	bool) {
	for _, d := range []nft.Key{{Destination: nft.SingleAddress(to.Addr()), Protocol: proto, Port: to.Port()},
		{Protocol: proto, Port: to.Port()}} {
		for _, name := range t.wants[d] {
			for i := range t.ports[name] {
				p := &t.ports[name][i]
				if p.isReachedBy(d) && t.isOwner(d, p) {
					return t.CandidatesOf(p, d == p.clusterKey(), client, local), true
				}
			}
		}
	}
	return Candidates{}, false
}

func (p *Port) isReachedBy(d nft.Key) bool {
	return d == p.clusterKey() || slices.Contains(p.externalKeys(), d) || p.NodePort != 0 && d == p.nodePortKey()
}

// CandidatesOf returns the endpoints of a port for a client. inside means that the client used the service's cluster
// IP.
func (t *Table) CandidatesOf(p *Port, inside bool, client netip.Addr, local func(netip.Addr) bool) Candidates {
	w := Candidates{Key: p.Key(), Endpoints: p.Endpoints, Affinity: p.Affinity}
	here := p.InternalLocal
	if !inside {
		here = p.ExternalLocal &&
			!slices.ContainsFunc(t.machine.Pods, func(n netip.Prefix) bool { return n.Contains(client) }) &&
			!local(client)
	}
	if here {
		w.Key, w.Endpoints = w.Key+" here", p.LocalEndpoints
	}
	return w
}
