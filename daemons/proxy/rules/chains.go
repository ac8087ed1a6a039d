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

// Chain names a chain of iptables' by its table and its name.
type Chain struct{ Table, Name string }

// Entrance is the chain that leads to all others.
var Entrance = Chain{"nat", "KUBE-SERVICES"}

// Chains that are there whatever the services are, named as upstream names them.
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

// Jump is a rule of a chain of the kernel's own that leads to ours. It stands before what others have there.
type Jump struct {
	From Chain
	Rule string
}

// Jumps are what leads to the chains. Every rule is in the words in which iptables-save tells of it.
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

// Proxied reports whether a chain is one that a proxy of services has made: whatever else there is belongs to others.
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

// Chains is a family's rules of all services as chains of iptables'. Most belong to one service port; some have lines
// of many services. It is not for several goroutines at once.
type Chains struct {
	Family nft.Family
	claims
	machine Machine
	nowhere bool
	parts   map[string]*part   // by service
	own     map[Chain][]string // chains that are one service's alone
	shared  map[Chain][]string // names of the services that have lines in a chain that is not theirs alone, sorted
	dirty   map[Chain]bool     // what has changed since Done
}

// part is what one service has: chains of its own, and lines in others.
type part struct {
	own   map[Chain][]string
	lines map[Chain][]string
}

// NewChains returns a family's chains of a machine without services.
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

// base is the chains that no service changes.
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
		// Node ports answer at the machine's own loopback, for which the kernel routes such addresses: nobody else may
		// use them.
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

// SetService gives a service other ports; none when it is gone.
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

// take takes in what a service has now, and notes what that changes.
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

// Changed are the chains that have changed since Done, as they are now; nil for one that is no more.
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

// All are all chains.
func (c *Chains) All() map[Chain][]string {
	all := c.base()
	for chain, lines := range all {
		all[chain] = c.whole(chain, lines)
	}
	maps.Copy(all, c.own)
	return all
}

// whole is a chain that is always there, with the lines of all services that have some in it. It is never nil.
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

// nodePorts leads to node ports what no address of a service has led elsewhere.
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

// Done says that the kernel has the chains as they are now.
func (c *Chains) Done() { clear(c.dirty) }

// hashed is a chain of a service port's own, named as upstream names it.
func hashed(kind string, p *Port, more string) string {
	name := p.Namespace + "/" + p.Service
	if p.Name != "" {
		name += ":" + p.Name
	}
	hash := sha256.Sum256([]byte(name + protocol(p) + more))
	return "KUBE-" + kind + "-" + base32.StdEncoding.EncodeToString(hash[:])[:16]
}

func protocol(p *Port) string { return strings.ToLower(string(word(p.Proto))) }
