package rules

import (
	"fmt"
	"math"
	"net/netip"
	"strings"

	"clusterctl/daemons/nft"
)

// chainBuilder builds the iptables rules of one service. It makes the same decisions as builder, in rules that are
// evaluated one by one.
type chainBuilder struct {
	part
	family  nft.Family
	machine Machine
	owns    func(nft.Key, *Port) bool
	led     map[nft.Key]bool
}

func (b *chainBuilder) line(c Chain, format string, args ...any) {
	b.lines[c] = append(b.lines[c], fmt.Sprintf(format, args...))
}

// mine reports whether a destination belongs to this port. The first port that asks gets it.
func (b *chainBuilder) mine(d nft.Key, p *Port) bool {
	if b.led[d] || !b.owns(d, p) {
		return false
	}
	b.led[d] = true
	return true
}

func host(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// comment returns a rule's comment match for a port, in the notation of iptables-save.
func comment(p *Port, more string) string {
	name := p.Namespace + "/" + p.Service
	if p.Name != "" {
		name += ":" + p.Name
	}
	return fmt.Sprintf(`-m comment --comment "%s %s"`, name, more)
}

// to returns a match of packets to an address and port, with a comment.
func to(a netip.Addr, p *Port, about string) string {
	return fmt.Sprintf("-d %s -p %s %s -m %s --dport %d", host(a), protocol(p), comment(p, about), protocol(p), p.Port)
}

func atNode(p *Port, about string) string {
	return fmt.Sprintf("-p %s %s -m %s --dport %d", protocol(p), comment(p, about), protocol(p), p.NodePort)
}

func (b *chainBuilder) refusal() string {
	if b.family == nft.IPv6 {
		return "REJECT --reject-with icmp6-port-unreachable"
	}
	return "REJECT --reject-with icmp-port-unreachable"
}

// add adds the rules of one service port.
func (b *chainBuilder) add(p *Port) {
	if len(p.Endpoints) == 0 {
		b.empty(p)
		return
	}
	cluster, local := hashed("SVC", p, ""), hashed("SVL", p, "")
	inside, usesCluster, usesLocal := cluster, !p.InternalLocal, false
	if p.InternalLocal {
		inside = local
	}
	switch {
	case !b.mine(p.inner(), p):
	case p.InternalLocal && len(p.Here) == 0:
		b.line(filterServices, "%s -j DROP", to(p.ClusterIP, p, "has no local endpoints"))
	default:
		usesLocal = p.InternalLocal
		b.line(Entrance, "%s -j %s", to(p.ClusterIP, p, "cluster IP"), inside)
	}
	if b.outside(p, cluster, local) {
		usesCluster = true
		usesLocal = usesLocal || p.ExternalLocal && len(p.Here) > 0
	}
	if usesCluster {
		b.choices(p, cluster, p.Endpoints)
	}
	if usesLocal {
		b.choices(p, local, p.Here)
	}
	for _, e := range p.used() {
		b.endpoint(p, e)
	}
}

// empty rejects packets to a port without endpoints.
func (b *chainBuilder) empty(p *Port) {
	const why = "has no endpoints"
	if b.mine(p.inner(), p) {
		b.line(filterServices, "%s -j %s", to(p.ClusterIP, p, why), b.refusal())
	}
	for i, d := range p.outer() {
		if b.mine(d, p) {
			b.line(filterExternal, "%s -j %s", to(p.External[i], p, why), b.refusal())
		}
	}
	if p.NodePort != 0 && b.mine(p.atNode(), p) {
		b.atNodes(p, why, b.refusal())
	}
}

// atNodes adds a rule for a port's node port at each address that has node ports.
func (b *chainBuilder) atNodes(p *Port, why, do string) {
	if len(b.machine.NodePorts) == 0 {
		b.line(
			filterExternal,
			"-p %s %s -m addrtype --dst-type LOCAL -m %s --dport %d -j %s",
			protocol(p),
			comment(p, why),
			protocol(p),
			p.NodePort,
			do,
		)
	}
	for _, n := range b.machine.NodePorts {
		b.line(
			filterExternal,
			"-d %s -p %s %s -m addrtype --dst-type LOCAL -m %s --dport %d -j %s",
			n,
			protocol(p),
			comment(p, why),
			protocol(p),
			p.NodePort,
			do,
		)
	}
}

// outside adds the rules for external addresses and node ports, and reports whether there are any.
func (b *chainBuilder) outside(p *Port, cluster, local string) (any bool) {
	external := hashed("EXT", p, "")
	nobody := p.ExternalLocal && len(p.Here) == 0
	for i, d := range p.outer() {
		if !b.mine(d, p) {
			continue
		}
		any = true
		ip := p.External[i]
		if limited(p, ip) {
			firewall := hashed("FW", p, "")
			b.line(Entrance, "%s -j %s", to(ip, p, "loadbalancer IP"), firewall)
			b.line(filterFirewall, "%s -j DROP", to(ip, p, "traffic not accepted by "+firewall))
			b.own[Chain{"nat", firewall}] = b.allowed(p, external)
		} else {
			b.line(Entrance, "%s -j %s", to(ip, p, "external IP"), external)
		}
		if nobody {
			b.line(filterExternal, "%s -j DROP", to(ip, p, "has no local endpoints"))
		}
	}
	if p.NodePort != 0 && b.mine(p.atNode(), p) {
		any = true
		b.line(natNodePorts, "%s -j %s", atNode(p, "node port"), external)
		if nobody {
			b.atNodes(p, "has no local endpoints", "DROP")
		}
	}
	if !any {
		return false
	}
	chain := Chain{"nat", external}
	if !p.ExternalLocal {
		b.own[chain] = []string{comment(p, "external traffic") + " -j KUBE-MARK-MASQ", "-j " + cluster}
		return true
	}
	// Pods and the machine itself reach all endpoints. Others only reach local endpoints, and keep their source
	// address.
	var rules []string
	for _, n := range b.machine.Pods {
		rules = append(rules, fmt.Sprintf("-s %s %s -j %s", n, comment(p, "pod traffic"), cluster))
	}
	rules = append(
		rules,
		comment(p, "local traffic")+" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ",
		comment(p, "local traffic")+" -m addrtype --src-type LOCAL -j "+cluster,
	)
	if !nobody {
		rules = append(rules, "-j "+local)
	}
	b.own[chain] = rules
	return true
}

func limited(p *Port, ip netip.Addr) bool {
	for _, balanced := range p.Balanced {
		if p.Limited && balanced == ip {
			return true
		}
	}
	return false
}

// allowed returns the rules that accept packets of allowed sources to a load balancer address. The filter table drops
// other packets, which remain untranslated.
func (b *chainBuilder) allowed(p *Port, external string) (rules []string) {
	for _, n := range p.Sources {
		if n.Bits() == 0 {
			rules = append(rules, comment(p, "loadbalancer IP")+" -j "+external)
			continue
		}
		rules = append(rules, fmt.Sprintf("-s %s %s -j %s", n, comment(p, "loadbalancer IP"), external))
	}
	return append(rules, comment(p, "loadbalancer IP")+" -m addrtype --src-type LOCAL -j "+external)
}

// choices adds a chain that selects one of several endpoints with equal probability, except for clients with session
// affinity.
func (b *chainBuilder) choices(p *Port, name string, eps []Endpoint) {
	chain := Chain{"nat", name}
	if _, there := b.own[chain]; there {
		return
	}
	var rules []string
	// Masquerade packets to a service address from outside the pod networks, so that the responses pass this machine.
	switch pods := b.machine.Pods; {
	case len(pods) == 1:
		rules = append(rules, fmt.Sprintf("! -s %s %s -j KUBE-MARK-MASQ", pods[0], to(p.ClusterIP, p, "cluster IP")))
	case len(pods) > 1:
		rules = append(rules, to(p.ClusterIP, p, "cluster IP")+" -j "+natOutside.Name)
	}
	if p.Affinity > 0 {
		for _, e := range eps {
			endpoint := hashed("SEP", p, e.To.String())
			rules = append(
				rules,
				fmt.Sprintf("%s -m recent --rcheck --seconds %d --reap --name %s --mask %s --rsource -j %s",
					comment(p, "-> "+e.To.String()), p.Affinity, endpoint, b.mask(), endpoint),
			)
		}
	}
	for i, e := range eps {
		chance := ""
		if left := len(eps) - i; left > 1 {
			chance = fmt.Sprintf(
				" -m statistic --mode random --probability %.11f",
				math.Round(1/float64(left)*(1<<31))/(1<<31),
			)
		}
		rules = append(
			rules,
			fmt.Sprintf("%s%s -j %s", comment(p, "-> "+e.To.String()), chance, hashed("SEP", p, e.To.String())),
		)
	}
	b.own[chain] = rules
}

func (b *chainBuilder) mask() string {
	if b.family == nft.IPv6 {
		return strings.Repeat("ffff:", 7) + "ffff"
	}
	return "255.255.255.255"
}

// endpoint adds the chain that translates to an endpoint.
func (b *chainBuilder) endpoint(p *Port, e Endpoint) {
	name := hashed("SEP", p, e.To.String())
	remember := ""
	if p.Affinity > 0 {
		remember = fmt.Sprintf("-m recent --set --name %s --mask %s --rsource ", name, b.mask())
	}
	b.own[Chain{"nat", name}] = []string{
		// If a service directs a pod's packet back to the pod, the source must be masqueraded. Otherwise the pod would
		// respond to itself.
		fmt.Sprintf("-s %s %s -j KUBE-MARK-MASQ", host(e.To.Addr()), comment(p, "hairpin")),
		fmt.Sprintf(
			"-p %s %s %s-m %s -j DNAT --to-destination %s",
			protocol(p),
			comment(p, "endpoint"),
			remember,
			protocol(p),
			e.To,
		),
	}
}
