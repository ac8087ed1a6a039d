package rules

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"slices"
	"strings"

	"clusterctl/daemons/nft"
)

// Chain identifies an iptables chain by table and name.
type Chain struct{ Table, Name string }

// EntryChain is the chain through which packets enter the other chains.
var EntryChain = Chain{"nat", "KUBE-SERVICES"}

// These chains exist regardless of services. The names are upstream's.
var (
	natNodePorts   = Chain{"nat", "KUBE-NODEPORTS"}
	natPostrouting = Chain{"nat", "KUBE-POSTROUTING"}
	natMark        = Chain{"nat", "KUBE-MARK-MASQ"}
	natOutside     = Chain{"nat", "KUBE-MARK-OUTSIDE"}
	filterServices = Chain{"filter", "KUBE-SERVICES"}
	filterExternal = Chain{"filter", "KUBE-EXTERNAL-SERVICES"}
	filterFirewall = Chain{"filter", "KUBE-PROXY-FIREWALL"}
	filterLoopback = Chain{"filter", "KUBE-FIREWALL"}
)

// Jump is a rule in a built-in chain that jumps to one of the proxy's chains. It comes before the rules of other
// programs.
type Jump struct {
	From Chain
	Rule string
}

// Jumps are the jumps to the chains. All rules are in the notation of iptables-save.
var Jumps = []Jump{
	{
		Chain{"filter", "INPUT"},
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`,
	},
	{
		Chain{"filter", "INPUT"},
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`,
	},
	{Chain{"filter", "INPUT"}, `-j KUBE-FIREWALL`},
	{
		Chain{"filter", "FORWARD"},
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`,
	},
	{
		Chain{"filter", "FORWARD"},
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
	},
	{
		Chain{"filter", "FORWARD"},
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`,
	},
	{
		Chain{"filter", "OUTPUT"},
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`,
	},
	{
		Chain{"filter", "OUTPUT"},
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
	},
	{
		Chain{"filter", "OUTPUT"},
		`-m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`,
	},
	{Chain{"nat", "PREROUTING"}, `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
	{Chain{"nat", "OUTPUT"}, `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
	{Chain{"nat", "POSTROUTING"}, `-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`},
}

// IsProxyChain reports whether a chain was created by a service proxy. All others belong to other programs.
func IsProxyChain(c Chain) bool {
	if slices.Contains(
		[]Chain{
			EntryChain,
			natNodePorts,
			natPostrouting,
			natMark,
			natOutside,
			filterServices,
			filterExternal,
			filterFirewall,
			filterLoopback,
		},
		c,
	) {
		return true
	}
	if c.Table != "nat" {
		return false
	}
	for _, kind := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-"} {
		if strings.HasPrefix(c.Name, kind) {
			return true
		}
	}
	return false
}

// Chains holds the iptables chains of one family for all services. Most chains belong to one service port; some have
// lines of many services. It is not safe for concurrent use.
type Chains struct {
	Family nft.Family
	destinationClaims
	machine        Machine
	hasNoNodePorts bool
	parts          map[string]*servicePart // by service
	ownChains      map[Chain][]string      // chains that belong to one service
	sharedLines    map[Chain][]string      // sorted names of the services that have lines in a shared chain
	changed        map[Chain]bool          // chains that have changed since MarkApplied
}

// servicePart is what one service has: its own chains, and lines in shared chains.
type servicePart struct {
	own   map[Chain][]string
	lines map[Chain][]string
}

// NewChains returns a family's chains for a machine without services.
func NewChains(f nft.Family, m Machine) *Chains {
	c := &Chains{Family: f, destinationClaims: newDestinationClaims(m), machine: m.withFamily(f),
		hasNoNodePorts: m.hasNoNodePorts(
			f,
		), parts: map[string]*servicePart{}, ownChains: map[Chain][]string{}, sharedLines: map[Chain][]string{},
		changed: map[Chain]bool{}}
	for chain := range c.baseChains() {
		c.changed[chain] = true
	}
	return c
}

// baseChains returns the chains that do not depend on services.
func (c *Chains) baseChains() map[Chain][]string {
	base := map[Chain][]string{
		EntryChain: nil, natNodePorts: nil, filterServices: nil, filterExternal: nil, filterFirewall: nil,
		filterLoopback: nil,
		natMark:        {fmt.Sprintf("-j MARK --set-xmark %#x/%#x", markBit, markBit)},
		natPostrouting: {
			fmt.Sprintf("-m mark ! --mark %#x/%#x -j RETURN", markBit, markBit),
			fmt.Sprintf("-j MARK --set-xmark %#x/0x0", markBit),
			`-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`,
		},
	}
	if c.Family == nft.IPv4 {
		// With node ports at 127.0.0.1, the kernel routes loopback addresses. Other machines must not use them.
		base[filterLoopback] = []string{
			`! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
		}
	}
	if len(c.machine.Pods) > 1 {
		for _, n := range c.machine.Pods {
			base[natOutside] = append(base[natOutside], "-s "+n.String()+" -j RETURN")
		}
		base[natOutside] = append(base[natOutside], "-j KUBE-MARK-MASQ")
	}
	return base
}

// SetService sets the ports of a service. ports is empty if the service was deleted.
func (c *Chains) SetService(service string, ports []Port) error {
	for _, name := range c.setPorts(service, ports) {
		b := &chainBuilder{
			servicePart: servicePart{own: map[Chain][]string{}, lines: map[Chain][]string{}},
			family:      c.Family,
			machine:     c.machine,
			owns:        c.isOwner,
			assigned:    map[nft.Key]bool{},
		}
		for i := range c.ports[name] {
			b.addPort(&c.ports[name][i])
		}
		c.store(name, &b.servicePart)
	}
	return nil
}

// store stores the new part of a service, and records which chains changed.
func (c *Chains) store(service string, after *servicePart) {
	before := c.parts[service]
	if before == nil {
		before = &servicePart{}
	}
	for chain, lines := range after.own {
		if old, ok := before.own[chain]; !ok || !slices.Equal(old, lines) {
			c.changed[chain] = true
		}
		c.ownChains[chain] = lines
	}
	for chain := range before.own {
		if _, stays := after.own[chain]; !stays {
			c.changed[chain] = true
			delete(c.ownChains, chain)
		}
	}
	for chain, lines := range after.lines {
		if !slices.Equal(before.lines[chain], lines) {
			c.changed[chain] = true
			c.sharedLines[chain] = insertName(c.sharedLines[chain], service)
		}
	}
	for chain := range before.lines {
		if _, stays := after.lines[chain]; !stays {
			c.changed[chain] = true
			c.sharedLines[chain] = removeName(c.sharedLines[chain], service)
		}
	}
	delete(c.parts, service)
	if len(after.own)+len(after.lines) > 0 {
		c.parts[service] = after
	}
}

// Changed returns the current content of the chains that have changed since the last call of MarkApplied. A removed
// chain has the value nil.
func (c *Chains) Changed() map[Chain][]string {
	all := map[Chain][]string{}
	if len(c.changed) == 0 {
		return all
	}
	base := c.baseChains()
	for chain := range c.changed {
		if lines, ok := base[chain]; ok {
			all[chain] = c.withSharedLines(chain, lines)
		} else {
			all[chain] = c.ownChains[chain]
		}
	}
	return all
}

// All returns all chains.
func (c *Chains) All() map[Chain][]string {
	all := c.baseChains()
	for chain, lines := range all {
		all[chain] = c.withSharedLines(chain, lines)
	}
	maps.Copy(all, c.ownChains)
	return all
}

// withSharedLines returns a shared chain with the lines of all services. It is never nil.
func (c *Chains) withSharedLines(chain Chain, lines []string) []string {
	all := slices.Clone(lines)
	for _, service := range c.sharedLines[chain] {
		all = append(all, c.parts[service].lines[chain]...)
	}
	if chain == EntryChain {
		all = append(all, c.nodePortJumps()...)
	}
	if all == nil {
		all = []string{}
	}
	return all
}

// nodePortJumps returns the jumps to the node ports, for packets that matched no service address.
func (c *Chains) nodePortJumps() (rules []string) {
	const to = `-m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`
	switch {
	case c.hasNoNodePorts:
	case len(c.machine.NodePorts) == 0 && c.Family == nft.IPv6:
		rules = append(rules, "! -d ::1/128 "+to)
	case len(c.machine.NodePorts) == 0:
		rules = append(rules, to)
	}
	for _, n := range c.machine.NodePorts {
		rules = append(rules, "-d "+n.String()+" "+to)
	}
	return rules
}

// MarkApplied marks that the kernel has the current chains.
func (c *Chains) MarkApplied() { clear(c.changed) }

// chainName returns the name of a service port's own chain, as upstream names it.
func chainName(kind string, p *Port, more string) string {
	name := p.Namespace + "/" + p.Service
	if p.Name != "" {
		name += ":" + p.Name
	}
	hash := sha256.Sum256([]byte(name + protocolName(p) + more))
	return "KUBE-" + kind + "-" + base32.StdEncoding.EncodeToString(hash[:])[:16]
}

func protocolName(p *Port) string { return strings.ToLower(string(protocolOf(p.Proto))) }
