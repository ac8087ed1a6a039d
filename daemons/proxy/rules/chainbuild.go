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
	servicePart
	family   nft.Family
	machine  Machine
	owns     func(nft.Key, *Port) bool
	assigned map[nft.Key]bool
}

func (b *chainBuilder) addLine(c Chain, format string, args ...any) {
	b.lines[c] = append(b.lines[c], fmt.Sprintf(format, args...))
}

// isOwn reports whether a destination belongs to this port. The first port that asks gets it.
func (b *chainBuilder) isOwn(d nft.Key, p *Port) bool {
	if b.assigned[d] || !b.owns(d, p) {
		return false
	}
	b.assigned[d] = true
	return true
}

func hostPrefix(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// commentMatch returns a rule's comment match for a port, in the notation of iptables-save.
func commentMatch(p *Port, more string) string {
	name := p.Namespace + "/" + p.Service
	if p.Name != "" {
		name += ":" + p.Name
	}
	return fmt.Sprintf(`-m comment --comment "%s %s"`, name, more)
}

// destinationMatch returns a match of packets to an address and port, with a comment.
func destinationMatch(a netip.Addr, p *Port, about string) string {
	return fmt.Sprintf("-d %s -p %s %s -m %s --dport %d", hostPrefix(a), protocolName(p), commentMatch(p, about),
		protocolName(p), p.Port)
}

func nodePortMatch(p *Port, about string) string {
	return fmt.Sprintf("-p %s %s -m %s --dport %d", protocolName(p), commentMatch(p, about), protocolName(p),
		p.NodePort)
}

func (b *chainBuilder) rejectTarget() string {
	if b.family == nft.IPv6 {
		return "REJECT --reject-with icmp6-port-unreachable"
	}
	return "REJECT --reject-with icmp-port-unreachable"
}

// addPort adds the rules of one service port.
func (b *chainBuilder) addPort(p *Port) {
	if len(p.Endpoints) == 0 {
		b.addEmpty(p)
		return
	}
	cluster, local := chainName("SVC", p, ""), chainName("SVL", p, "")
	inside, usesCluster, usesLocal := cluster, !p.InternalLocal, false
	if p.InternalLocal {
		inside = local
	}
	switch {
	case !b.isOwn(p.clusterKey(), p):
	case p.InternalLocal && len(p.LocalEndpoints) == 0:
		b.addLine(filterServices, "%s -j DROP", destinationMatch(p.ClusterIP, p, "has no local endpoints"))
	default:
		usesLocal = p.InternalLocal
		b.addLine(EntryChain, "%s -j %s", destinationMatch(p.ClusterIP, p, "cluster IP"), inside)
	}
	if b.addExternal(p, cluster, local) {
		usesCluster = true
		usesLocal = usesLocal || p.ExternalLocal && len(p.LocalEndpoints) > 0
	}
	if usesCluster {
		b.addChoices(p, cluster, p.Endpoints)
	}
	if usesLocal {
		b.addChoices(p, local, p.LocalEndpoints)
	}
	for _, e := range p.usedEndpoints() {
		b.addEndpoint(p, e)
	}
}

// addEmpty rejects packets to a port without endpoints.
func (b *chainBuilder) addEmpty(p *Port) {
	const reason = "has no endpoints"
	if b.isOwn(p.clusterKey(), p) {
		b.addLine(filterServices, "%s -j %s", destinationMatch(p.ClusterIP, p, reason), b.rejectTarget())
	}
	for i, d := range p.externalKeys() {
		if b.isOwn(d, p) {
			b.addLine(filterExternal, "%s -j %s", destinationMatch(p.External[i], p, reason), b.rejectTarget())
		}
	}
	if p.NodePort != 0 && b.isOwn(p.nodePortKey(), p) {
		b.addNodePort(p, reason, b.rejectTarget())
	}
}

// addNodePort adds a rule for a port's node port at each address that has node ports.
func (b *chainBuilder) addNodePort(p *Port, reason, do string) {
	if len(b.machine.NodePorts) == 0 {
		b.addLine(filterExternal, "-p %s %s -m addrtype --dst-type LOCAL -m %s --dport %d -j %s", protocolName(p),
			commentMatch(p, reason), protocolName(p), p.NodePort, do)
	}
	for _, n := range b.machine.NodePorts {
		b.addLine(filterExternal, "-d %s -p %s %s -m addrtype --dst-type LOCAL -m %s --dport %d -j %s", n,
			protocolName(p), commentMatch(p, reason), protocolName(p), p.NodePort, do)
	}
}

// addExternal adds the rules for external addresses and node ports, and reports whether there are any.
func (b *chainBuilder) addExternal(p *Port, cluster, local string) (any bool) {
	external := chainName("EXT", p, "")
	noEndpoints := p.ExternalLocal && len(p.LocalEndpoints) == 0
	for i, d := range p.externalKeys() {
		if !b.isOwn(d, p) {
			continue
		}
		any = true
		ip := p.External[i]
		if isLimited(p, ip) {
			firewall := chainName("FW", p, "")
			b.addLine(EntryChain, "%s -j %s", destinationMatch(ip, p, "loadbalancer IP"), firewall)
			b.addLine(filterFirewall, "%s -j DROP", destinationMatch(ip, p, "traffic not accepted by "+firewall))
			b.own[Chain{"nat", firewall}] = b.allowedSources(p, external)
		} else {
			b.addLine(EntryChain, "%s -j %s", destinationMatch(ip, p, "external IP"), external)
		}
		if noEndpoints {
			b.addLine(filterExternal, "%s -j DROP", destinationMatch(ip, p, "has no local endpoints"))
		}
	}
	if p.NodePort != 0 && b.isOwn(p.nodePortKey(), p) {
		any = true
		b.addLine(natNodePorts, "%s -j %s", nodePortMatch(p, "node port"), external)
		if noEndpoints {
			b.addNodePort(p, "has no local endpoints", "DROP")
		}
	}
	if !any {
		return false
	}
	chain := Chain{"nat", external}
	if !p.ExternalLocal {
		b.own[chain] = []string{commentMatch(p, "external traffic") + " -j KUBE-MARK-MASQ", "-j " + cluster}
		return true
	}
	// Pods and the machine itself reach all endpoints. Others only reach local endpoints, and keep their source
	// address.
	var rules []string
	for _, n := range b.machine.Pods {
		rules = append(rules, fmt.Sprintf("-s %s %s -j %s", n, commentMatch(p, "pod traffic"), cluster))
	}
	rules = append(rules, commentMatch(p, "local traffic")+" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ",
		commentMatch(p, "local traffic")+" -m addrtype --src-type LOCAL -j "+cluster)
	if !noEndpoints {
		rules = append(rules, "-j "+local)
	}
	b.own[chain] = rules
	return true
}

func isLimited(p *Port, ip netip.Addr) bool {
	for _, balanced := range p.Balanced {
		if p.Limited && balanced == ip {
			return true
		}
	}
	return false
}

// allowedSources returns the rules that accept packets of allowed sources to a load balancer address. The filter table
// drops other packets, which remain untranslated.
func (b *chainBuilder) allowedSources(p *Port, external string) (rules []string) {
	for _, n := range p.Sources {
		if n.Bits() == 0 {
			rules = append(rules, commentMatch(p, "loadbalancer IP")+" -j "+external)
			continue
		}
		rules = append(rules, fmt.Sprintf("-s %s %s -j %s", n, commentMatch(p, "loadbalancer IP"), external))
	}
	return append(rules, commentMatch(p, "loadbalancer IP")+" -m addrtype --src-type LOCAL -j "+external)
}

// addChoices adds a chain that selects one of several endpoints with equal probability, except for clients with session
// affinity.
func (b *chainBuilder) addChoices(p *Port, name string, eps []Endpoint) {
	chain := Chain{"nat", name}
	if _, ok := b.own[chain]; ok {
		return
	}
	var rules []string
	// Masquerade packets to a service address from outside the pod networks, so that the responses pass this machine.
	switch pods := b.machine.Pods; {
	case len(pods) == 1:
		rules = append(rules, fmt.Sprintf("! -s %s %s -j KUBE-MARK-MASQ", pods[0],
			destinationMatch(p.ClusterIP, p, "cluster IP")))
	case len(pods) > 1:
		rules = append(rules, destinationMatch(p.ClusterIP, p, "cluster IP")+" -j "+natOutside.Name)
	}
	if p.Affinity > 0 {
		for _, e := range eps {
			endpoint := chainName("SEP", p, e.To.String())
			rules = append(rules, fmt.Sprintf(
				"%s -m recent --rcheck --seconds %d --reap --name %s --mask %s --rsource -j %s",
				commentMatch(p, "-> "+e.To.String()), p.Affinity, endpoint, b.masqueradeMark(), endpoint))
		}
	}
	for i, e := range eps {
		chance := ""
		if left := len(eps) - i; left > 1 {
			chance = fmt.Sprintf(" -m statistic --mode random --probability %.11f",
				math.Round(1/float64(left)*(1<<31))/(1<<31))
		}
		rules = append(rules, fmt.Sprintf("%s%s -j %s", commentMatch(p, "-> "+e.To.String()), chance,
			chainName("SEP", p, e.To.String())))
	}
	b.own[chain] = rules
}

func (b *chainBuilder) masqueradeMark() string {
	if b.family == nft.IPv6 {
		return strings.Repeat("ffff:", 7) + "ffff"
	}
	return "255.255.255.255"
}

// addEndpoint adds the chain that translates to an endpoint.
func (b *chainBuilder) addEndpoint(p *Port, e Endpoint) {
	name := chainName("SEP", p, e.To.String())
	remember := ""
	if p.Affinity > 0 {
		remember = fmt.Sprintf("-m recent --set --name %s --mask %s --rsource ", name, b.masqueradeMark())
	}
	b.own[Chain{"nat", name}] = []string{
		// If a service directs a pod's packet back to the pod, the source must be masqueraded. Otherwise the pod would
		// respond to itself.
		fmt.Sprintf("-s %s %s -j KUBE-MARK-MASQ", hostPrefix(e.To.Addr()), commentMatch(p, "hairpin")),
		fmt.Sprintf("-p %s %s %s-m %s -j DNAT --to-destination %s", protocolName(p), commentMatch(p, "endpoint"),
			remember, protocolName(p), e.To),
	}
}
