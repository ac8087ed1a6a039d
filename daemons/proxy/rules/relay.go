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
	only := m.of(f)
	table, err := nft.NewTable(f, TableName, base(f, only, m.nowhere(f), tcp))
	if err != nil {
		return nil, err
	}
	return &Table{Table: table, claims: newClaims(m), machine: only}, nil
}

// addRelay adds the rules of userspace mode to the base. They reject packets that were sent directly to the proxy's
// ports, because such packets would bypass the services' rules.
func addRelay(f *nft.Fragment, tcp uint16) {
	f.Sets[relaySet] = nft.Set{Key: toPort}
	f.Elements = map[string][]nft.Element{relaySet: {{Key: nft.Key{Protocol: nft.TCP, Port: tcp}}}}
	f.Chains[relayTCP] = nft.Chain{Rules: []nft.Rule{{nft.Is{Protocol: nft.TCP}, nft.Redirect{Port: tcp}}}}
	f.Chains[relayInput] = nft.Chain{Hook: &nft.Hook{Type: "filter", Name: "input"}, Rules: []nft.Rule{
		{
			nft.In{Set: relaySet, Key: toPort},
			nft.Untranslated{},
			nft.Do{Verdict: nft.Verdict{Action: "goto", Chain: refused}},
		}}}
}

// relay adds the rules of a port that the proxy forwards. Access restrictions and ports without endpoints are still
// handled by rules.
func (b *builder) relay(p *Port, put func(string, nft.Key, nft.Value) bool) {
	if p.InternalLocal && len(p.Here) == 0 {
		put(emptyMap, p.inner(), nft.Goes("drop", ""))
	} else {
		put(serviceMap, p.inner(), nft.Goes("goto", b.relayTo(p, p.Relay.Inside, "relay")))
	}
	if len(p.External) == 0 && p.NodePort == 0 {
		return
	}
	to := b.relayTo(p, p.Relay.Outside, "relayoutside")
	everywhere := nft.Do{Verdict: nft.Verdict{Action: "goto", Chain: to}}
	list := b.firewall(p)
	if p.ExternalLocal && len(p.Here) == 0 {
		for _, n := range b.machine.Pods {
			list = append(list, nft.Rule{nft.From{Net: n}, everywhere})
		}
		list = append(
			list,
			nft.Rule{nft.FromLocal{}, everywhere},
			nft.Rule{nft.Do{Verdict: nft.Verdict{Action: "drop"}}},
		)
	} else if len(list) > 0 {
		list = append(list, nft.Rule{everywhere})
	}
	if len(list) > 0 {
		to = p.chain("external")
		b.Chains[to] = nft.Chain{Rules: list}
	}
	for _, d := range p.outer() {
		put(serviceMap, d, nft.Goes("goto", to))
	}
	if p.NodePort != 0 {
		put(nodePortMap, p.atNode(), nft.Goes("goto", to))
	}
}

// relayTo returns the chain that redirects to a port of the proxy.
func (b *builder) relayTo(p *Port, port uint16, kind string) string {
	if p.Proto == nft.TCP {
		return relayTCP
	}
	if port == p.Relay.Inside {
		kind = "relay"
	}
	name := p.chain(kind)
	b.Chains[name] = nft.Chain{Rules: []nft.Rule{{nft.Is{Protocol: p.Proto}, nft.Redirect{Port: port}}}}
	e := nft.Element{Key: nft.Key{Protocol: p.Proto, Port: port}}
	if !slices.Contains(b.Elements[relaySet], e) {
		b.element(relaySet, e)
	}
	return name
}

// Way states to which endpoints the proxy may forward a connection.
type Way struct {
	Key       string // identifies what is selected in turn
	Endpoints []Endpoint
	Affinity  int32 // seconds
}

// Leads returns the endpoints for a client and a destination. It returns false if the destination belongs to no
// service. local reports whether an address belongs to this machine.
func (t *Table) Leads(proto uint8, to netip.AddrPort, client netip.Addr, local func(netip.Addr) bool) (Way, bool) {
	for _, d := range []nft.Key{{Destination: nft.One(to.Addr()), Protocol: proto, Port: to.Port()},
		{Protocol: proto, Port: to.Port()}} {
		for _, name := range t.wants[d] {
			for i := range t.ports[name] {
				p := &t.ports[name][i]
				if p.reachedBy(d) && t.owns(d, p) {
					return t.WayOf(p, d == p.inner(), client, local), true
				}
			}
		}
	}
	return Way{}, false
}

func (p *Port) reachedBy(d nft.Key) bool {
	return d == p.inner() || slices.Contains(p.outer(), d) || p.NodePort != 0 && d == p.atNode()
}

// WayOf returns the endpoints of a port for a client. inside means that the client used the service's cluster IP.
func (t *Table) WayOf(p *Port, inside bool, client netip.Addr, local func(netip.Addr) bool) Way {
	w := Way{Key: p.Key(), Endpoints: p.Endpoints, Affinity: p.Affinity}
	here := p.InternalLocal
	if !inside {
		here = p.ExternalLocal &&
			!slices.ContainsFunc(t.machine.Pods, func(n netip.Prefix) bool { return n.Contains(client) }) &&
			!local(client)
	}
	if here {
		w.Key, w.Endpoints = w.Key+" here", p.Here
	}
	return w
}
