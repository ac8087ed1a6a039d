package rules

import (
	"fmt"
	"net/netip"
)

// Names of what is in the table whatever the services are.
const (
	serviceMap  = "service-ips"
	nodePortMap = "service-nodeports"
	emptyMap    = "no-endpoint-services"
	emptyNodes  = "no-endpoint-nodeports"
	services    = "services"
	refuse      = "reject-empty"
	refused     = "reject"
)

// Where the kernel enters.
const (
	dstNAT     = -100
	srcNAT     = 100
	beforeNAT  = -110
	maxPerRule = 1 << 15
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// Machine is what rules depend on besides services.
type Machine struct {
	Pods      []netip.Prefix // networks of pods; what comes from elsewhere to a service address is masqueraded
	NodePorts []netip.Prefix // where node ports answer; all of the machine's addresses when empty
}

// Build works out all rules of a machine.
func Build(ports []Port, m Machine) *Table {
	t := &Table{Chains: map[string]Chain{}, Sets: map[string]Set{}, Maps: map[string]Map{
		serviceMap:  {Key: AddrProtoPort, Elements: map[Dest]Verdict{}},
		nodePortMap: {Key: ProtoPort, Elements: map[Dest]Verdict{}},
		emptyMap:    {Key: AddrProtoPort, Elements: map[Dest]Verdict{}},
		emptyNodes:  {Key: ProtoPort, Elements: map[Dest]Verdict{}},
	}}
	jump := Rule{Do{Verdict{"jump", services}}}
	t.Chains["nat-prerouting"] = Chain{Hook: &Hook{"nat", "prerouting", dstNAT}, Rules: []Rule{jump}}
	t.Chains["nat-output"] = Chain{Hook: &Hook{"nat", "output", dstNAT}, Rules: []Rule{jump}}
	t.Chains["nat-postrouting"] = Chain{Hook: &Hook{"nat", "postrouting", srcNAT}, Rules: []Rule{{Marked{}, Masquerade{}}}}
	// Connections that are open go on when their service has lost its last endpoint.
	check := Rule{New{}, Do{Verdict{"jump", refuse}}}
	t.Chains["filter-prerouting"] = Chain{Hook: &Hook{"filter", "prerouting", beforeNAT}, Rules: []Rule{check}}
	t.Chains["filter-output"] = Chain{Hook: &Hook{"filter", "output", beforeNAT}, Rules: []Rule{check}}
	nodePorts := func(name string) (rules []Rule) {
		if len(m.NodePorts) == 0 {
			return []Rule{{ToLocal{}, To{loopback, true}, Lookup{name, ProtoPort}}}
		}
		for _, n := range m.NodePorts {
			rules = append(rules, Rule{ToLocal{}, To{n, false}, Lookup{name, ProtoPort}})
		}
		return rules
	}
	t.Chains[services] = Chain{Rules: append([]Rule{{Lookup{serviceMap, AddrProtoPort}}}, nodePorts(nodePortMap)...)}
	t.Chains[refuse] = Chain{Rules: append([]Rule{{Lookup{emptyMap, AddrProtoPort}}}, nodePorts(emptyNodes)...)}
	t.Chains[refused] = Chain{Rules: []Rule{{Reject{}}}}
	whose := owners(ports)
	for i := range ports {
		t.add(&ports[i], m, whose)
	}
	return t
}

// owners says to whom each destination leads. A service's own address is its own, whatever another calls an external one: whoever may
// write services chooses these freely, and would have the traffic of the API server or of DNS. Of two that have the same external
// address, the first by name keeps it, also while it has no endpoints.
func owners(ports []Port) map[Dest]*Port {
	whose, clusterIPs := map[Dest]*Port{}, map[netip.Addr]bool{}
	claim := func(d Dest, p *Port) {
		if whose[d] == nil {
			whose[d] = p
		}
	}
	for i := range ports {
		p := &ports[i]
		clusterIPs[p.ClusterIP] = true
		claim(Dest{p.ClusterIP, p.Proto, p.Port}, p)
		if p.NodePort != 0 {
			claim(Dest{Proto: p.Proto, Port: p.NodePort}, p)
		}
	}
	for i := range ports {
		p := &ports[i]
		for _, ip := range p.External {
			if !clusterIPs[ip] {
				claim(Dest{ip, p.Proto, p.Port}, p)
			}
		}
	}
	return whose
}

// add adds the rules of one service port.
func (t *Table) add(p *Port, m Machine, whose map[Dest]*Port) {
	inner := Dest{p.ClusterIP, p.Proto, p.Port}
	outer := make([]Dest, 0, len(p.External))
	for _, ip := range p.External {
		outer = append(outer, Dest{ip, p.Proto, p.Port})
	}
	inside := p.Endpoints
	if p.InternalLocal {
		inside = p.Here
	}
	put := func(name string, d Dest, v Verdict) {
		if whose[d] == p {
			t.Maps[name].Elements[d] = v
		}
	}
	no := Verdict{"goto", refused}
	if len(p.Endpoints) == 0 {
		put(emptyMap, inner, no)
		for _, d := range outer {
			put(emptyMap, d, no)
		}
		if p.NodePort != 0 {
			put(emptyNodes, Dest{Proto: p.Proto, Port: p.NodePort}, no)
		}
		return
	}
	for _, e := range p.used() {
		t.endpoint(p, e)
	}
	cluster := p.chain("service")
	switch {
	case len(inside) == 0:
		put(emptyMap, inner, Verdict{Action: "drop"})
	default:
		t.Chains[cluster] = Chain{Rules: append(outsiders(p, m), t.choose(p, inside)...)}
		put(serviceMap, inner, Verdict{"goto", cluster})
	}
	if len(outer) == 0 && p.NodePort == 0 {
		return
	}
	external := p.chain("external")
	t.Chains[external] = Chain{Rules: t.external(p, m)}
	for _, d := range outer {
		put(serviceMap, d, Verdict{"goto", external})
	}
	if p.NodePort != 0 {
		put(nodePortMap, Dest{Proto: p.Proto, Port: p.NodePort}, Verdict{"goto", external})
	}
}

// outsiders masquerades what comes to a service address from outside the pods'
// networks, so that the answer comes back through here.
func outsiders(p *Port, m Machine) []Rule {
	if len(m.Pods) != 1 {
		return nil
	}
	return []Rule{{To{netip.PrefixFrom(p.ClusterIP, 32), false}, From{m.Pods[0], true}, Mark{}}}
}

// external returns the rules for what comes to a service from outside.
func (t *Table) external(p *Port, m Machine) []Rule {
	var rules []Rule
	if len(p.Sources) > 0 {
		// What is not allowed is dropped; from the machine itself it is always allowed.
		allow := p.chain("firewall")
		var list []Rule
		for _, s := range p.Sources {
			list = append(list, Rule{From{s, false}, Do{Verdict{Action: "return"}}})
		}
		list = append(list, Rule{FromLocal{}, Do{Verdict{Action: "return"}}}, Rule{Do{Verdict{Action: "drop"}}})
		t.Chains[allow] = Chain{Rules: list}
		for _, ip := range p.External {
			rules = append(rules, Rule{To{netip.PrefixFrom(ip, 32), false}, Do{Verdict{"jump", allow}}})
		}
	}
	if !p.ExternalLocal {
		return append(append(rules, Rule{Mark{}}), t.choose(p, p.Endpoints)...)
	}
	// Pods and the machine itself reach all endpoints; others only those that are here,
	// with their own address kept.
	everywhere := t.choose(p, p.Endpoints)
	all := p.chain("all")
	t.Chains[all] = Chain{Rules: everywhere}
	for _, n := range m.Pods {
		rules = append(rules, Rule{From{n, false}, Do{Verdict{"goto", all}}})
	}
	rules = append(rules, Rule{FromLocal{}, Mark{}, Do{Verdict{"goto", all}}})
	if len(p.Here) == 0 {
		return append(rules, Rule{Do{Verdict{Action: "drop"}}})
	}
	return append(rules, t.choose(p, p.Here)...)
}

// choose returns the rules that pick one of several endpoints.
func (t *Table) choose(p *Port, eps []Endpoint) []Rule {
	var rules []Rule
	names := make([]string, 0, len(eps))
	for _, e := range eps[:min(len(eps), maxPerRule)] {
		if p.Affinity > 0 {
			rules = append(rules, Rule{FromSeen{affinity(p, e)}, Do{Verdict{"goto", endpointChain(p, e)}}})
		}
		names = append(names, endpointChain(p, e))
	}
	if len(names) == 1 {
		return append(rules, Rule{Do{Verdict{"goto", names[0]}}})
	}
	return append(rules, Rule{Random{names}})
}

// endpoint adds the chain that sends to one endpoint.
func (t *Table) endpoint(p *Port, e Endpoint) {
	rules := []Rule{{From{netip.PrefixFrom(e.To.Addr(), 32), false}, Mark{}}} // to itself, by way of the service
	if p.Affinity > 0 {
		set := affinity(p, e)
		t.Sets[set] = Set{Seconds: p.Affinity}
		rules = append(rules, Rule{Remember{set, p.Affinity}})
	}
	t.Chains[endpointChain(p, e)] = Chain{Rules: append(rules, Rule{DNAT{p.Proto, e.To}})}
}

func endpointChain(p *Port, e Endpoint) string {
	name := p.chain("endpoint")
	if len(name) > 95 {
		name = name[:95]
	}
	return fmt.Sprintf("%s__%s/%d", name, e.To.Addr(), e.To.Port())
}

func affinity(p *Port, e Endpoint) string {
	return "affinity" + endpointChain(p, e)[len("endpoint"):]
}
