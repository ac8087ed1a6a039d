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

// Entrance is the chain through which packets enter the other chains.
var Entrance = Chain{"nat", "KUBE-SERVICES"}

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

// Proxied reports whether a chain was created by a service proxy. All others belong to other programs.
func Proxied(c Chain) bool {
	if slices.Contains(
		[]Chain{
			Entrance,
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
	claims
	machine Machine
	nowhere bool
	parts   map[string]*part   // by service
	own     map[Chain][]string // chains that belong to one service
	shared  map[Chain][]string // sorted names of the services that have lines in a shared chain
	dirty   map[Chain]bool     // chains that have changed since Done
}

// part is what one service has: its own chains, and lines in shared chains.
type part struct {
	own   map[Chain][]string
	lines map[Chain][]string
}

// NewChains returns a family's chains for a machine without services.
func NewChains(f nft.Family, m Machine) *Chains {
	c := &Chains{Family: f, claims: newClaims(m), machine: m.of(f),
		nowhere: m.nowhere(
			f,
		), parts: map[string]*part{}, own: map[Chain][]string{}, shared: map[Chain][]string{}, dirty: map[Chain]bool{}}
	for chain := range c.base() {
		c.dirty[chain] = true
	}
	return c
}

// base returns the chains that do not depend on services.
func (c *Chains) base() map[Chain][]string {
	base := map[Chain][]string{
		Entrance: nil, natNodePorts: nil, filterServices: nil, filterExternal: nil, filterFirewall: nil,
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
	for _, name := range c.set(service, ports) {
		b := &chainBuilder{
			part:    part{own: map[Chain][]string{}, lines: map[Chain][]string{}},
			family:  c.Family,
			machine: c.machine,
			owns:    c.owns,
			led:     map[nft.Key]bool{},
		}
		for i := range c.ports[name] {
			b.add(&c.ports[name][i])
		}
		c.take(name, &b.part)
	}
	return nil
}

// take stores the new part of a service, and records which chains changed.
func (c *Chains) take(service string, is *part) {
	was := c.parts[service]
	if was == nil {
		was = &part{}
	}
	for chain, lines := range is.own {
		if old, there := was.own[chain]; !there || !slices.Equal(old, lines) {
			c.dirty[chain] = true
		}
		c.own[chain] = lines
	}
	for chain := range was.own {
		if _, stays := is.own[chain]; !stays {
			c.dirty[chain] = true
			delete(c.own, chain)
		}
	}
	for chain, lines := range is.lines {
		if !slices.Equal(was.lines[chain], lines) {
			c.dirty[chain] = true
			c.shared[chain] = with(c.shared[chain], service)
		}
	}
	for chain := range was.lines {
		if _, stays := is.lines[chain]; !stays {
			c.dirty[chain] = true
			c.shared[chain] = without(c.shared[chain], service)
		}
	}
	delete(c.parts, service)
	if len(is.own)+len(is.lines) > 0 {
		c.parts[service] = is
	}
}

// Changed returns the current content of the chains that have changed since Done, or nil for a removed chain.
func (c *Chains) Changed() map[Chain][]string {
	all := map[Chain][]string{}
	if len(c.dirty) == 0 {
		return all
	}
	base := c.base()
	for chain := range c.dirty {
		if lines, there := base[chain]; there {
			all[chain] = c.whole(chain, lines)
		} else {
			all[chain] = c.own[chain]
		}
	}
	return all
}

// All returns all chains.
func (c *Chains) All() map[Chain][]string {
	all := c.base()
	for chain, lines := range all {
		all[chain] = c.whole(chain, lines)
	}
	maps.Copy(all, c.own)
	return all
}

// whole returns a shared chain with the lines of all services. It is never nil.
func (c *Chains) whole(chain Chain, lines []string) []string {
	all := slices.Clone(lines)
	for _, service := range c.shared[chain] {
		all = append(all, c.parts[service].lines[chain]...)
	}
	if chain == Entrance {
		all = append(all, c.nodePorts()...)
	}
	if all == nil {
		all = []string{}
	}
	return all
}

// nodePorts returns the jumps to the node ports, for packets that matched no service address.
func (c *Chains) nodePorts() (rules []string) {
	const to = `-m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`
	switch {
	case c.nowhere:
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

// Done marks that the kernel has the current chains.
func (c *Chains) Done() { clear(c.dirty) }

// hashed returns the name of a service port's own chain, as upstream names it.
func hashed(kind string, p *Port, more string) string {
	name := p.Namespace + "/" + p.Service
	if p.Name != "" {
		name += ":" + p.Name
	}
	hash := sha256.Sum256([]byte(name + protocol(p) + more))
	return "KUBE-" + kind + "-" + base32.StdEncoding.EncodeToString(hash[:])[:16]
}

func protocol(p *Port) string { return strings.ToLower(string(word(p.Proto))) }
