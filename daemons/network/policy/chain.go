package policy

import (
	"fmt"
	"hash/fnv"
	"strings"

	"clusterctl/daemons/nft"
)

// setName identifies the set of a group's addresses. With a port, it is the set of the addresses and port numbers of
// the pods that name the port.
type setName struct{ group, port string }

func (s setName) String() string {
	if s.port == "" {
		return s.group
	}
	return s.group + "-" + s.port
}

func (s setName) set() nft.Set {
	if s.port == "" {
		return nft.Set{Key: source}
	}
	return nft.Set{Key: toPort}
}

// maxName limits the length of names. It leaves room for the number of a block set within the kernel's limit of 127
// bytes.
const maxName = 115

// named returns a name for a chain or set that is unique for its words. The last word is readable in the name.
func named(kind string, words ...string) string {
	h := fnv.New128a()
	for _, w := range words {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	name := fmt.Sprintf("%s-%x", kind, h.Sum(nil)[:10])
	if last := words[len(words)-1]; last != "" {
		name += "-" + last
	}
	return name[:min(len(name), maxName)]
}

// resolved maps named ports to their numbers in a pod.
type resolved map[namedPort][]uint16

// text returns a text that is equal for pods in which a policy's named ports have the same numbers. It is empty for a
// policy without named ports.
func (r resolved) text(p *policy) string {
	var b strings.Builder
	for _, n := range p.named {
		fmt.Fprintf(&b, "%s/%d=%v ", n.Name, n.Protocol, r[n])
	}
	return b.String()
}

// chainOf returns the name of a policy's chain for one direction.
func chainOf(p *policy, d direction, r resolved) string {
	text := ""
	if d == ingress {
		text = r.text(p)
	}
	return named(d.String(), text, p.key)
}

// builder builds the chain of one policy for one direction and family.
type builder struct {
	fragment nft.Fragment
	chain    string
	d        direction
	family   nft.Family
	ports    resolved
	rules    []nft.Rule
	seen     map[string]bool
	uses     map[setName]bool
}

// letThrough appends to a rule the statements that accept the packet.
func (b *builder) letThrough(r nft.Rule) nft.Rule {
	if b.d == egress {
		return append(r, nft.Mark{Bits: letOut}, back)
	}
	return append(r, accept)
}

// build returns the chain of a policy and the group sets that it uses.
func build(p *policy, d direction, f nft.Family, ports resolved) (*nft.Fragment, map[setName]bool) {
	b := builder{
		chain: chainOf(p, d, ports), d: d, family: f, ports: ports, seen: map[string]bool{}, uses: map[setName]bool{},
		fragment: nft.Fragment{Sets: map[string]nft.Set{}, Elements: map[string][]nft.Element{}},
	}
	for i, r := range p.rules[d] {
		b.rule(i, r)
	}
	b.fragment.Chains = map[string]nft.Chain{b.chain: {Rules: b.rules}}
	return &b.fragment, b.uses
}

// peerKey returns the address field of the rule's peers.
func (b *builder) peerKey() []nft.Field {
	if b.d == egress {
		return destination
	}
	return source
}

func (b *builder) rule(i int, r rule) {
	if r.anyone {
		b.peer(nil, r, func(name string) []nft.Stmt { return b.lookup(setName{r.everybody, name}, toPort) })
	}
	for _, g := range r.groups {
		b.peer(func() []nft.Stmt { return b.lookup(setName{group: g}, b.peerKey()) }, r,
			func(name string) []nft.Stmt { return b.lookup(setName{g, name}, toPort) })
	}
	elements := r.blocks.elements(b.family)
	if len(elements) == 0 {
		return
	}
	set := fmt.Sprintf("%s-%d", b.chain, i)
	b.fragment.Sets[set] = nft.Set{Key: source, Ranges: true}
	b.fragment.Elements[set] = elements
	in := nft.In{Set: set, Key: b.peerKey()}
	b.peer(func() []nft.Stmt { return []nft.Stmt{in} }, r,
		func(name string) []nft.Stmt {
			return append([]nft.Stmt{in}, b.lookup(setName{r.everybody, name}, toPort)...)
		})
}

// lookup returns the statements that match packets by a group's set, and records the use of the set.
func (b *builder) lookup(s setName, key []nft.Field) []nft.Stmt {
	b.uses[s] = true
	return []nft.Stmt{nft.In{Set: s.String(), Key: key}}
}

// peer adds the rules for one peer. who returns the match of the peer's addresses. called returns the match of its
// addresses together with the numbers of a named port.
func (b *builder) peer(who func() []nft.Stmt, r rule, called func(name string) []nft.Stmt) {
	is := func(stmts ...nft.Stmt) {
		var rule nft.Rule
		if who != nil {
			rule = who()
		}
		b.add(b.letThrough(append(rule, stmts...)))
	}
	if r.anyPort {
		is()
	}
	for _, p := range r.ports {
		switch {
		case p.Name != "" && b.d == egress:
			b.add(b.letThrough(append(nft.Rule{nft.Is{Protocol: p.Protocol}}, called(p.Name)...)))
		case p.Name != "":
			for _, n := range b.ports[p.namedPort] {
				is(nft.Is{Protocol: p.Protocol}, nft.ToPorts{First: n, Last: n})
			}
		case p.first == 0 && p.last == 65535:
			is(nft.Is{Protocol: p.Protocol})
		default:
			is(nft.Is{Protocol: p.Protocol}, nft.ToPorts{First: p.first, Last: p.last})
		}
	}
}

// add adds a rule unless the chain already has it.
func (b *builder) add(r nft.Rule) {
	text := fmt.Sprint(r)
	if !b.seen[text] {
		b.seen[text] = true
		b.rules = append(b.rules, r)
	}
}
