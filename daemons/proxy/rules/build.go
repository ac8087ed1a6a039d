package rules

import (
	"fmt"
	"net/netip"

	"clusterctl/daemons/nft"
)

// TableName is the name of the proxy's tables, the same as upstream's.
const TableName = "kube-proxy"

// These are the names of the sets and chains that exist in every table.
const (
	serviceMap  = "service-ips"
	nodePortMap = "service-nodeports"
	emptyMap    = "no-endpoint-services"
	emptyNodes  = "no-endpoint-nodeports"
	countMap    = "service-endpoint-counts"
	endpointMap = "service-endpoints"
	hairpinSet  = "hairpin-connections"
	services    = "services"
	refuse      = "reject-empty"
	refused     = "reject"
)

// These are the priorities of the base chains.
const (
	dstNAT    = -100
	srcNAT    = 100
	beforeNAT = -110
)

// These are the names of the sets and chains that only userspace mode needs.
const (
	relaySet   = "relay-ports"
	relayTCP   = "relay-tcp"
	relayInput = "relay-input"
)

// markBit is the bit of the packet mark that requests masquerading, the same as upstream's.
const markBit = 0x4000

var (
	loopback4, loopback6 = netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")

	toService = []nft.Field{nft.Destination, nft.Protocol, nft.Port}
	toPort    = []nft.Field{nft.Protocol, nft.Port}
	toItself  = []nft.Field{nft.Source, nft.Destination}
	toOne     = []nft.Field{nft.Destination, nft.Protocol, nft.Port, nft.Index}
)

// Machine holds the inputs of the rules besides services.
type Machine struct {
	Pods      []netip.Prefix // networks of pods; packets from elsewhere to a service address are masqueraded
	NodePorts []netip.Prefix // networks of the addresses with node ports; if empty, all of the machine's addresses
	// API lists the endpoints of the API servers. No Service can take them over: a machine whose packets to the API
	// servers are translated could never learn that the Service was deleted.
	API []netip.AddrPort
}

// of returns the machine with only the networks of a family.
func (m Machine) of(f nft.Family) Machine {
	only := func(all []netip.Prefix) (some []netip.Prefix) {
		for _, p := range all {
			if of(p.Addr(), f) {
				some = append(some, p)
			}
		}
		return some
	}
	return Machine{only(m.Pods), only(m.NodePorts), m.API}
}

// nowhere reports whether no address of a family has node ports.
func (m Machine) nowhere(f nft.Family) bool {
	return len(m.NodePorts) > 0 && len(m.of(f).NodePorts) == 0
}

// base returns the part of a family's table that does not depend on services. nowhere means that no address of the
// family has node ports. relay is the port at which the proxy accepts TCP connections, 0 if the kernel forwards them.
func base(f nft.Family, m Machine, nowhere bool, relay uint16) *nft.Fragment {
	jump := nft.Rule{nft.Do{Verdict: nft.Verdict{Action: "jump", Chain: services}}}
	// Open connections continue when their service loses its last endpoint.
	check := nft.Rule{nft.First{}, nft.Do{Verdict: nft.Verdict{Action: "jump", Chain: refuse}}}
	loopback := loopback4
	if f == nft.IPv6 {
		loopback = loopback6
	}
	nodePorts := func(name string) (rules []nft.Rule) {
		switch {
		case nowhere:
		case len(m.NodePorts) == 0 && relay != 0:
			rules = append(rules, nft.Rule{nft.ToLocal{}, nft.Lookup{Map: name, Key: toPort}})
		case len(m.NodePorts) == 0:
			rules = append(
				rules,
				nft.Rule{nft.ToLocal{}, nft.To{Net: loopback, Not: true}, nft.Lookup{Map: name, Key: toPort}},
			)
		}
		for _, n := range m.NodePorts {
			rules = append(rules, nft.Rule{nft.ToLocal{}, nft.To{Net: n}, nft.Lookup{Map: name, Key: toPort}})
		}
		return rules
	}
	fragment := &nft.Fragment{
		Sets: map[string]nft.Set{
			serviceMap: {Key: toService, To: nft.Verdicts}, nodePortMap: {Key: toPort, To: nft.Verdicts},
			emptyMap: {Key: toService, To: nft.Verdicts}, emptyNodes: {Key: toPort, To: nft.Verdicts},
			countMap: {Key: toService, To: nft.Numbers}, endpointMap: {Key: toOne, To: nft.Endpoints},
			hairpinSet: {Key: toItself},
		},
		Chains: map[string]nft.Chain{
			"nat-prerouting": {
				Hook:  &nft.Hook{Type: "nat", Name: "prerouting", Priority: dstNAT},
				Rules: []nft.Rule{jump},
			},
			"nat-output": {Hook: &nft.Hook{Type: "nat", Name: "output", Priority: dstNAT}, Rules: []nft.Rule{jump}},
			// If a service directs a pod's packet back to the pod, the source must be masqueraded. Otherwise the pod
			// would respond to itself.
			"nat-postrouting": {Hook: &nft.Hook{Type: "nat", Name: "postrouting", Priority: srcNAT}, Rules: []nft.Rule{
				{
					nft.Marked{Bits: markBit},
					nft.Masquerade{},
				}, {nft.In{Set: hairpinSet, Key: toItself}, nft.Masquerade{}}}},
			"filter-prerouting": {
				Hook:  &nft.Hook{Type: "filter", Name: "prerouting", Priority: beforeNAT},
				Rules: []nft.Rule{check},
			},
			"filter-output": {
				Hook:  &nft.Hook{Type: "filter", Name: "output", Priority: beforeNAT},
				Rules: []nft.Rule{check},
			},
			services: {
				Rules: append(
					[]nft.Rule{
						{nft.Note{Map: countMap, Key: toService}},
						{nft.ByNote{Chains: picks()}},
						{nft.Lookup{Map: serviceMap, Key: toService}},
					},
					nodePorts(nodePortMap)...),
			},
			refuse:  {Rules: append([]nft.Rule{{nft.Lookup{Map: emptyMap, Key: toService}}}, nodePorts(emptyNodes)...)},
			refused: {Rules: []nft.Rule{{nft.Reject{}}}},
		},
	}
	if relay != 0 {
		addRelay(fragment, relay)
	}
	for i, name := range picks() {
		// During a change, the count and the list of endpoints may be inconsistent. The first endpoint is in both lists
		// and serves as the fallback.
		fragment.Chains[name] = nft.Chain{Rules: append(
			append([]nft.Rule{{nft.Unnote{}}}, outsiders(m)...),
			nft.Rule{
				nft.RandomOf{Map: endpointMap, Key: toService, Of: i + 1},
			},
			nft.Rule{nft.RandomOf{Map: endpointMap, Key: toService, Of: 1}},
		)}
	}
	return fragment
}

// maxListed is the largest number of endpoints that are selected by maps alone. A service with more endpoints gets its
// own chain.
const maxListed = 32

// picks returns the names of the chains that select among 1, 2, … maxListed endpoints.
func picks() []string {
	names := make([]string, maxListed)
	for i := range names {
		names[i] = fmt.Sprintf("endpoint-of-%02d", i+1)
	}
	return names
}

// builder builds the fragment of one service.
type builder struct {
	nft.Fragment
	machine Machine
	owns    func(nft.Key, *Port) bool // reports whether a destination belongs to this service
	led     map[nft.Key]bool          // destinations that already lead to one of its ports
}

func (b *builder) element(set string, e nft.Element) { b.Elements[set] = append(b.Elements[set], e) }

// add adds the rules of one service port.
func (b *builder) add(p *Port) {
	put := func(set string, d nft.Key, v nft.Value) bool {
		if !b.owns(d, p) || b.led[d] {
			return false
		}
		b.led[d] = true
		b.element(set, nft.Element{Key: d, Value: v})
		return true
	}
	no := nft.Goes("goto", refused)
	if len(p.Endpoints) == 0 {
		put(emptyMap, p.inner(), no)
		for _, d := range p.outer() {
			put(emptyMap, d, no)
		}
		if p.NodePort != 0 {
			put(emptyNodes, p.atNode(), no)
		}
		return
	}
	if p.Relay.Inside != 0 {
		b.relay(p, put)
		return
	}
	b.endpoints(p)
	inside := p.Endpoints
	if p.InternalLocal {
		inside = p.Here
	}
	switch {
	case len(inside) == 0:
		put(emptyMap, p.inner(), nft.Goes("drop", ""))
	case p.Affinity == 0 && len(inside) <= maxListed:
		if put(countMap, p.inner(), nft.Value{Number: uint32(len(inside))}) {
			b.list(p, inside)
		}
	default:
		cluster := p.chain("service")
		b.Chains[cluster] = nft.Chain{Rules: append(outsiders(b.machine), b.choose(p, inside)...)}
		put(serviceMap, p.inner(), nft.Goes("goto", cluster))
	}
	if len(p.External) == 0 && p.NodePort == 0 {
		return
	}
	external := p.chain("external")
	b.Chains[external] = nft.Chain{Rules: b.external(p)}
	for _, d := range p.outer() {
		put(serviceMap, d, nft.Goes("goto", external))
	}
	if p.NodePort != 0 {
		put(nodePortMap, p.atNode(), nft.Goes("goto", external))
	}
}

// endpoints adds the rules of the endpoints that do not depend on the client.
func (b *builder) endpoints(p *Port) {
	for _, e := range p.used() {
		if e.Local || e.Unknown {
			b.element(
				hairpinSet,
				nft.Element{Key: nft.Key{Source: nft.One(e.To.Addr()), Destination: nft.One(e.To.Addr())}},
			)
		}
		if p.Affinity > 0 {
			set := affinity(p, e)
			b.Sets[set] = nft.Set{Key: []nft.Field{nft.Source}, Seconds: p.Affinity}
			b.Chains[endpointChain(p, e)] = nft.Chain{
				Rules: []nft.Rule{
					{nft.Remember{Set: set, Seconds: p.Affinity}},
					{nft.Is{Protocol: p.Proto}, nft.DNAT{To: e.To}},
				},
			}
		}
	}
}

// list adds endpoints by number, for the chains that select by number.
func (b *builder) list(p *Port, eps []Endpoint) {
	for i, e := range eps {
		k := p.inner()
		k.Index = uint32(i)
		b.element(endpointMap, nft.Element{Key: k, Value: nft.Value{To: e.To}})
	}
}

// outsiders returns the rules that masquerade packets to a service address from outside the pod networks, so that the
// responses pass this machine.
func outsiders(m Machine) []nft.Rule {
	if len(m.Pods) == 0 {
		return nil
	}
	var rule nft.Rule
	for _, n := range m.Pods {
		rule = append(rule, nft.From{Net: n, Not: true})
	}
	return []nft.Rule{append(rule, nft.Mark{Bits: markBit})}
}

// external returns the rules for packets to a port's external addresses.
func (b *builder) external(p *Port) []nft.Rule {
	rules := b.firewall(p)
	if !p.ExternalLocal {
		return append(append(rules, nft.Rule{nft.Mark{Bits: markBit}}), b.choose(p, p.Endpoints)...)
	}
	// Pods and the machine itself reach all endpoints. Others only reach local endpoints, and keep their source
	// address.
	all := p.chain("all")
	b.Chains[all] = nft.Chain{Rules: b.choose(p, p.Endpoints)}
	everywhere := nft.Do{Verdict: nft.Verdict{Action: "goto", Chain: all}}
	for _, n := range b.machine.Pods {
		rules = append(rules, nft.Rule{nft.From{Net: n}, everywhere})
	}
	rules = append(rules, nft.Rule{nft.FromLocal{}, nft.Mark{Bits: markBit}, everywhere})
	if len(p.Here) == 0 {
		return append(rules, nft.Rule{nft.Do{Verdict: nft.Verdict{Action: "drop"}}})
	}
	return append(rules, b.choose(p, p.Here)...)
}

// firewall returns the rules that restrict the sources of packets to a load balancer address.
func (b *builder) firewall(p *Port) (rules []nft.Rule) {
	if !p.Limited {
		return nil
	}
	// Packets from other sources are dropped. The machine itself is always allowed.
	allow := p.chain("firewall")
	var list []nft.Rule
	for _, s := range p.Sources {
		list = append(list, nft.Rule{nft.From{Net: s}, nft.Do{Verdict: nft.Verdict{Action: "return"}}})
	}
	list = append(
		list,
		nft.Rule{nft.FromLocal{}, nft.Do{Verdict: nft.Verdict{Action: "return"}}},
		nft.Rule{nft.Do{Verdict: nft.Verdict{Action: "drop"}}},
	)
	b.Chains[allow] = nft.Chain{Rules: list}
	for _, ip := range p.Balanced {
		rules = append(
			rules,
			nft.Rule{
				nft.To{Net: netip.PrefixFrom(ip, ip.BitLen())},
				nft.Do{Verdict: nft.Verdict{Action: "jump", Chain: allow}},
			},
		)
	}
	return rules
}

// choose returns the rules that select one of several endpoints.
func (b *builder) choose(p *Port, eps []Endpoint) []nft.Rule {
	if p.Affinity == 0 {
		if len(eps) == 1 {
			return []nft.Rule{{nft.Is{Protocol: p.Proto}, nft.DNAT{To: eps[0].To}}}
		}
		to := make([]netip.AddrPort, len(eps))
		for i, e := range eps {
			to[i] = e.To
		}
		return []nft.Rule{{nft.Is{Protocol: p.Proto}, nft.RandomTo{To: to}}}
	}
	var rules []nft.Rule
	names := make([]string, len(eps))
	for i, e := range eps {
		names[i] = endpointChain(p, e)
		rules = append(
			rules,
			nft.Rule{
				nft.In{Set: affinity(p, e), Key: []nft.Field{nft.Source}},
				nft.Do{Verdict: nft.Verdict{Action: "goto", Chain: names[i]}},
			},
		)
	}
	if len(names) == 1 {
		return append(rules, nft.Rule{nft.Do{Verdict: nft.Verdict{Action: "goto", Chain: names[0]}}})
	}
	return append(rules, nft.Rule{nft.Random{Chains: names}})
}

func endpointChain(p *Port, e Endpoint) string {
	return fmt.Sprintf("%s__%s/%d", p.chain("endpoint"), e.To.Addr(), e.To.Port())
}

// affinity returns the name of the set of an endpoint's clients. The name contains the timeout, because the timeout of
// an existing set cannot be changed.
func affinity(p *Port, e Endpoint) string {
	return fmt.Sprintf("%s__%s/%d/%ds", p.chain("affinity"), e.To.Addr(), e.To.Port(), p.Affinity)
}
