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
	serviceMap        = "service-ips"
	nodePortMap       = "service-nodeports"
	noEndpointMap     = "no-endpoint-services"
	noEndpointPortMap = "no-endpoint-nodeports"
	countMap          = "service-endpoint-counts"
	endpointMap       = "service-endpoints"
	hairpinSet        = "hairpin-connections"
	servicesChain     = "services"
	rejectEmptyChain  = "reject-empty"
	rejectChain       = "reject"
)

// These are the priorities of the base chains.
const (
	dstNATPriority    = -100
	srcNATPriority    = 100
	beforeNATPriority = -110
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

	serviceKey = []nft.Field{nft.Destination, nft.Protocol, nft.Port}
	portKey    = []nft.Field{nft.Protocol, nft.Port}
	hairpinKey = []nft.Field{nft.Source, nft.Destination}
	indexKey   = []nft.Field{nft.Destination, nft.Protocol, nft.Port, nft.Index}
)

// Machine holds the inputs of the rules besides services.
type Machine struct {
	Pods      []netip.Prefix // networks of pods; packets from elsewhere to a service address are masqueraded
	NodePorts []netip.Prefix // networks of the addresses with node ports; if empty, all of the machine's addresses
	// API lists the endpoints of the API servers. No Service can take them over: a machine whose packets to the API
	// servers are translated could never learn that the Service was deleted.
	API []netip.AddrPort
}

// withFamily returns the machine with only the networks of a family.
func (m Machine) withFamily(f nft.Family) Machine {
	only := func(all []netip.Prefix) (some []netip.Prefix) {
		for _, p := range all {
			if isOfFamily(p.Addr(), f) {
				some = append(some, p)
			}
		}
		return some
	}
	return Machine{only(m.Pods), only(m.NodePorts), m.API}
}

// hasNoNodePorts reports whether no address of a family has node ports.
func (m Machine) hasNoNodePorts(f nft.Family) bool {
	return len(m.NodePorts) > 0 && len(m.withFamily(f).NodePorts) == 0
}

// baseFragment returns the part of a family's table that does not depend on services. nowhere means that no address of
// the family has node ports. relay is the port at which the proxy accepts TCP connections, 0 if the kernel forwards
// them.
func baseFragment(f nft.Family, m Machine, nowhere bool, relay uint16) *nft.Fragment {
	jump := nft.Rule{nft.Decide{Verdict: nft.Verdict{Action: "jump", Chain: servicesChain}}}
	// Open connections continue when their service loses its last endpoint.
	check := nft.Rule{nft.NewConnection{}, nft.Decide{Verdict: nft.Verdict{Action: "jump", Chain: rejectEmptyChain}}}
	fragment := &nft.Fragment{
		Sets: map[string]nft.Set{
			serviceMap: {Key: serviceKey, Values: nft.Verdicts}, nodePortMap: {Key: portKey, Values: nft.Verdicts},
			noEndpointMap:     {Key: serviceKey, Values: nft.Verdicts},
			noEndpointPortMap: {Key: portKey, Values: nft.Verdicts},
			countMap:          {Key: serviceKey, Values: nft.Numbers},
			endpointMap:       {Key: indexKey, Values: nft.Endpoints},
			hairpinSet:        {Key: hairpinKey},
		},
		Chains: map[string]nft.Chain{
			"nat-prerouting": {
				Hook:  &nft.Hook{Type: "nat", Name: "prerouting", Priority: dstNATPriority},
				Rules: []nft.Rule{jump},
			},
			"nat-output": {Hook: &nft.Hook{Type: "nat", Name: "output", Priority: dstNATPriority},
				Rules: []nft.Rule{jump}},
			// If a service directs a pod's packet back to the pod, the source must be masqueraded. Otherwise the pod
			// would respond to itself.
			"nat-postrouting": {Hook: &nft.Hook{Type: "nat", Name: "postrouting", Priority: srcNATPriority},
				Rules: []nft.Rule{
					{
						nft.Marked{Bits: markBit},
						nft.Masquerade{},
					}, {nft.InSet{Set: hairpinSet, Key: hairpinKey}, nft.Masquerade{}}}},
			"filter-prerouting": {
				Hook:  &nft.Hook{Type: "filter", Name: "prerouting", Priority: beforeNATPriority},
				Rules: []nft.Rule{check},
			},
			"filter-output": {
				Hook:  &nft.Hook{Type: "filter", Name: "output", Priority: beforeNATPriority},
				Rules: []nft.Rule{check},
			},
			servicesChain: {
				Rules: append(
					[]nft.Rule{
						{nft.StoreNumber{Map: countMap, Key: serviceKey}},
						{nft.GotoStored{Chains: pickChains()}},
						{nft.Lookup{Map: serviceMap, Key: serviceKey}},
					},
					nodePortRules(f, m, nodePortMap, nowhere, relay)...),
			},
			rejectEmptyChain: {Rules: append([]nft.Rule{{nft.Lookup{Map: noEndpointMap, Key: serviceKey}}},
				nodePortRules(f, m, noEndpointPortMap, nowhere, relay)...)},
			rejectChain: {Rules: []nft.Rule{{nft.Reject{}}}},
		},
	}
	if relay != 0 {
		addRelay(fragment, relay)
	}
	for i, name := range pickChains() {
		// During a change, the count and the list of endpoints may be inconsistent. The first endpoint is in both lists
		// and serves as the fallback.
		fragment.Chains[name] = nft.Chain{Rules: append(
			append([]nft.Rule{{nft.ClearStored{}}}, masqueradeOutside(m)...),
			nft.Rule{
				nft.RandomFrom{Map: endpointMap, Key: serviceKey, Count: i + 1},
			},
			nft.Rule{nft.RandomFrom{Map: endpointMap, Key: serviceKey, Count: 1}},
		)}
	}
	return fragment
}

// nodePortRules returns the rules that look up packets to node ports in a map.
func nodePortRules(f nft.Family, m Machine, name string, nowhere bool, relay uint16) (rules []nft.Rule) {
	loopback := loopback4
	if f == nft.IPv6 {
		loopback = loopback6
	}
	switch {
	case nowhere:
	case len(m.NodePorts) == 0 && relay != 0:
		rules = append(rules, nft.Rule{nft.ToLocal{}, nft.Lookup{Map: name, Key: portKey}})
	case len(m.NodePorts) == 0:
		rules = append(rules,
			nft.Rule{nft.ToLocal{}, nft.ToNet{Net: loopback, Not: true}, nft.Lookup{Map: name, Key: portKey}})
	}
	for _, n := range m.NodePorts {
		rules = append(rules, nft.Rule{nft.ToLocal{}, nft.ToNet{Net: n}, nft.Lookup{Map: name, Key: portKey}})
	}
	return rules
}

// maxByMap is the largest number of endpoints that are selected by maps alone. A service with more endpoints gets its
// own chain.
const maxByMap = 32

// pickChains returns the names of the chains that select among 1, 2, … maxByMap endpoints.
func pickChains() []string {
	names := make([]string, maxByMap)
	for i := range names {
		names[i] = fmt.Sprintf("endpoint-of-%02d", i+1)
	}
	return names
}

// builder builds the fragment of one service.
type builder struct {
	nft.Fragment
	machine  Machine
	owns     func(nft.Key, *Port) bool // reports whether a destination belongs to this service
	assigned map[nft.Key]bool          // destinations that already lead to one of its ports
}

func (b *builder) addElement(set string, e nft.Element) { b.Elements[set] = append(b.Elements[set], e) }

// addPort adds the rules of one service port.
func (b *builder) addPort(p *Port) {
	put := func(set string, d nft.Key, v nft.Value) bool {
		if !b.owns(d, p) || b.assigned[d] {
			return false
		}
		b.assigned[d] = true
		b.addElement(set, nft.Element{Key: d, Value: v})
		return true
	}
	no := nft.VerdictValue("goto", rejectChain)
	if len(p.Endpoints) == 0 {
		put(noEndpointMap, p.clusterKey(), no)
		for _, d := range p.externalKeys() {
			put(noEndpointMap, d, no)
		}
		if p.NodePort != 0 {
			put(noEndpointPortMap, p.nodePortKey(), no)
		}
		return
	}
	if p.Relay.Inside != 0 {
		b.addRelayed(p, put)
		return
	}
	b.addEndpoints(p)
	inside := p.Endpoints
	if p.InternalLocal {
		inside = p.LocalEndpoints
	}
	switch {
	case len(inside) == 0:
		put(noEndpointMap, p.clusterKey(), nft.VerdictValue("drop", ""))
	case p.Affinity == 0 && len(inside) <= maxByMap:
		if put(countMap, p.clusterKey(), nft.Value{Number: uint32(len(inside))}) {
			b.addByNumber(p, inside)
		}
	default:
		cluster := p.chainName("service")
		b.Chains[cluster] = nft.Chain{Rules: append(masqueradeOutside(b.machine), b.chooseRules(p, inside)...)}
		put(serviceMap, p.clusterKey(), nft.VerdictValue("goto", cluster))
	}
	if len(p.External) == 0 && p.NodePort == 0 {
		return
	}
	external := p.chainName("external")
	b.Chains[external] = nft.Chain{Rules: b.externalRules(p)}
	for _, d := range p.externalKeys() {
		put(serviceMap, d, nft.VerdictValue("goto", external))
	}
	if p.NodePort != 0 {
		put(nodePortMap, p.nodePortKey(), nft.VerdictValue("goto", external))
	}
}

// addEndpoints adds the rules of the endpoints that do not depend on the client.
func (b *builder) addEndpoints(p *Port) {
	for _, e := range p.usedEndpoints() {
		if e.Local || e.Unknown {
			b.addElement(
				hairpinSet,
				nft.Element{Key: nft.Key{Source: nft.SingleAddress(e.To.Addr()),
					Destination: nft.SingleAddress(e.To.Addr())}},
			)
		}
		if p.Affinity > 0 {
			set := affinitySet(p, e)
			b.Sets[set] = nft.Set{Key: []nft.Field{nft.Source}, Timeout: p.Affinity}
			b.Chains[endpointChain(p, e)] = nft.Chain{
				Rules: []nft.Rule{
					{nft.AddSource{Set: set, Timeout: p.Affinity}},
					{nft.IsProtocol{Protocol: p.Proto}, nft.DNAT{To: e.To}},
				},
			}
		}
	}
}

// addByNumber adds endpoints by number, for the chains that select by number.
func (b *builder) addByNumber(p *Port, eps []Endpoint) {
	for i, e := range eps {
		k := p.clusterKey()
		k.Index = uint32(i)
		b.addElement(endpointMap, nft.Element{Key: k, Value: nft.Value{To: e.To}})
	}
}

// masqueradeOutside returns the rules that masquerade packets to a service address from outside the pod networks, so
// that the responses pass this machine.
func masqueradeOutside(m Machine) []nft.Rule {
	if len(m.Pods) == 0 {
		return nil
	}
	var rule nft.Rule
	for _, n := range m.Pods {
		rule = append(rule, nft.FromNet{Net: n, Not: true})
	}
	return []nft.Rule{append(rule, nft.Mark{Bits: markBit})}
}

// externalRules returns the rules for packets to a port's external addresses.
func (b *builder) externalRules(p *Port) []nft.Rule {
	rules := b.firewallRules(p)
	if !p.ExternalLocal {
		return append(append(rules, nft.Rule{nft.Mark{Bits: markBit}}), b.chooseRules(p, p.Endpoints)...)
	}
	// Pods and the machine itself reach all endpoints. Others only reach local endpoints, and keep their source
	// address.
	all := p.chainName("all")
	b.Chains[all] = nft.Chain{Rules: b.chooseRules(p, p.Endpoints)}
	everywhere := nft.Decide{Verdict: nft.Verdict{Action: "goto", Chain: all}}
	for _, n := range b.machine.Pods {
		rules = append(rules, nft.Rule{nft.FromNet{Net: n}, everywhere})
	}
	rules = append(rules, nft.Rule{nft.FromLocal{}, nft.Mark{Bits: markBit}, everywhere})
	if len(p.LocalEndpoints) == 0 {
		return append(rules, nft.Rule{nft.Decide{Verdict: nft.Verdict{Action: "drop"}}})
	}
	return append(rules, b.chooseRules(p, p.LocalEndpoints)...)
}

// firewallRules returns the rules that restrict the sources of packets to a load balancer address.
func (b *builder) firewallRules(p *Port) (rules []nft.Rule) {
	if !p.Limited {
		return nil
	}
	// Packets from other sources are dropped. The machine itself is always allowed.
	allow := p.chainName("firewall")
	var list []nft.Rule
	for _, s := range p.Sources {
		list = append(list, nft.Rule{nft.FromNet{Net: s}, nft.Decide{Verdict: nft.Verdict{Action: "return"}}})
	}
	list = append(list, nft.Rule{nft.FromLocal{}, nft.Decide{Verdict: nft.Verdict{Action: "return"}}},
		nft.Rule{nft.Decide{Verdict: nft.Verdict{Action: "drop"}}})
	b.Chains[allow] = nft.Chain{Rules: list}
	for _, ip := range p.Balanced {
		rules = append(
			rules,
			nft.Rule{
				nft.ToNet{Net: netip.PrefixFrom(ip, ip.BitLen())},
				nft.Decide{Verdict: nft.Verdict{Action: "jump", Chain: allow}},
			},
		)
	}
	return rules
}

// chooseRules returns the rules that select one of several endpoints.
func (b *builder) chooseRules(p *Port, eps []Endpoint) []nft.Rule {
	if p.Affinity == 0 {
		if len(eps) == 1 {
			return []nft.Rule{{nft.IsProtocol{Protocol: p.Proto}, nft.DNAT{To: eps[0].To}}}
		}
		to := make([]netip.AddrPort, len(eps))
		for i, e := range eps {
			to[i] = e.To
		}
		return []nft.Rule{{nft.IsProtocol{Protocol: p.Proto}, nft.RandomTo{To: to}}}
	}
	var rules []nft.Rule
	names := make([]string, len(eps))
	for i, e := range eps {
		names[i] = endpointChain(p, e)
		rules = append(
			rules,
			nft.Rule{
				nft.InSet{Set: affinitySet(p, e), Key: []nft.Field{nft.Source}},
				nft.Decide{Verdict: nft.Verdict{Action: "goto", Chain: names[i]}},
			},
		)
	}
	if len(names) == 1 {
		return append(rules, nft.Rule{nft.Decide{Verdict: nft.Verdict{Action: "goto", Chain: names[0]}}})
	}
	return append(rules, nft.Rule{nft.Random{Chains: names}})
}

func endpointChain(p *Port, e Endpoint) string {
	return fmt.Sprintf("%s__%s/%d", p.chainName("endpoint"), e.To.Addr(), e.To.Port())
}

// affinitySet returns the name of the set of an endpoint's clients. The name contains the timeout, because the timeout
// of an existing set cannot be changed.
func affinitySet(p *Port, e Endpoint) string {
	return fmt.Sprintf("%s__%s/%d/%ds", p.chainName("affinity"), e.To.Addr(), e.To.Port(), p.Affinity)
}
