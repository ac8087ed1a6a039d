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
		return nft.Set{Key: sourceKey}
	}
	return nft.Set{Key: portKey}
}

// maxName limits the length of names. It leaves room for the number of a block set within the kernel's limit of 127
// bytes.
const maxName = 115

// uniqueName returns a name for a chain or set that is unique for its words. The last word is readable in the name.
func uniqueName(kind string, words ...string) string {
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

// portNumbers maps named ports to their numbers in a pod.
type portNumbers map[namedPort][]uint16

// key returns a text that is equal for pods in which a policy's named ports have the same numbers. It is empty for a
// policy without named ports.
func (r portNumbers) key(p *parsedPolicy) string {
	var b strings.Builder
	for _, n := range p.namedPorts {
		fmt.Fprintf(&b, "%s/%d=%v ", n.Name, n.Protocol, r[n])
	}
	return b.String()
}

// chainName returns the name of a policy's chain for one direction.
func chainName(p *parsedPolicy, d direction, r portNumbers) string {
	text := ""
	if d == directionIngress {
		text = r.key(p)
	}
	return uniqueName(d.String(), text, p.key)
}

// chainBuilder builds the chain of one policy for one direction and family.
type chainBuilder struct {
	fragment nft.Fragment
	chain    string
	d        direction
	family   nft.Family
	ports    portNumbers
	rules    []nft.Rule
	seen     map[string]bool
	uses     map[setName]bool
}

// appendAccept appends to a rule the statements that accept the packet.
func (b *chainBuilder) appendAccept(r nft.Rule) nft.Rule {
	if b.d == directionEgress {
		return append(r, nft.Mark{Bits: egressMark}, returnVerdict)
	}
	return append(r, acceptVerdict)
}

// buildChain returns the chain of a policy and the group sets that it uses.
func buildChain(p *parsedPolicy, d direction, f nft.Family, ports portNumbers) (*nft.Fragment, map[setName]bool) {
	b := chainBuilder{
		chain: chainName(p, d, ports), d: d, family: f, ports: ports, seen: map[string]bool{}, uses: map[setName]bool{},
		fragment: nft.Fragment{Sets: map[string]nft.Set{}, Elements: map[string][]nft.Element{}},
	}
	for i, r := range p.rules[d] {
		b.addRule(i, r)
	}
	b.fragment.Chains = map[string]nft.Chain{b.chain: {Rules: b.rules}}
	return &b.fragment, b.uses
}

// peerKey returns the address field of the rule's peers.
func (b *chainBuilder) peerKey() []nft.Field {
	if b.d == directionEgress {
		return destinationKey
	}
	return sourceKey
}

func (b *chainBuilder) addRule(i int, r peerRule) {
	if r.hasAllPeers {
		b.addPeer(nil, r, func(name string) []nft.Stmt { return b.lookup(setName{r.allPodsGroup, name}, portKey) })
	}
	for _, g := range r.groups {
		b.addPeer(func() []nft.Stmt { return b.lookup(setName{group: g}, b.peerKey()) }, r,
			func(name string) []nft.Stmt { return b.lookup(setName{g, name}, portKey) })
	}
	elements := r.blocks.elements(b.family)
	if len(elements) == 0 {
		return
	}
	set := fmt.Sprintf("%s-%d", b.chain, i)
	b.fragment.Sets[set] = nft.Set{Key: sourceKey, Ranges: true}
	b.fragment.Elements[set] = elements
	in := nft.InSet{Set: set, Key: b.peerKey()}
	b.addPeer(func() []nft.Stmt { return []nft.Stmt{in} }, r,
		func(name string) []nft.Stmt {
			return append([]nft.Stmt{in}, b.lookup(setName{r.allPodsGroup, name}, portKey)...)
		})
}

// lookup returns the statements that match packets by a group's set, and records the use of the set.
func (b *chainBuilder) lookup(s setName, key []nft.Field) []nft.Stmt {
	b.uses[s] = true
	return []nft.Stmt{nft.InSet{Set: s.String(), Key: key}}
}

// addPeer adds the rules for one peer. who returns the match of the peer's addresses. called returns the match of its
// addresses together with the numbers of a named port.
func (b *chainBuilder) addPeer(who func() []nft.Stmt, r peerRule, called func(name string) []nft.Stmt) {
	accept := func(stmts ...nft.Stmt) {
		var rule nft.Rule
		if who != nil {
			rule = who()
		}
		b.appendRule(b.appendAccept(append(rule, stmts...)))
	}
	if r.anyPort {
		accept()
	}
	for _, p := range r.ports {
		switch {
		case p.Name != "" && b.d == directionEgress:
			b.appendRule(b.appendAccept(append(nft.Rule{nft.IsProtocol{Protocol: p.Protocol}}, called(p.Name)...)))
		case p.Name != "":
			for _, n := range b.ports[p.namedPort] {
				accept(nft.IsProtocol{Protocol: p.Protocol}, nft.ToPorts{First: n, Last: n})
			}
		case p.first == 0 && p.last == 65535:
			accept(nft.IsProtocol{Protocol: p.Protocol})
		default:
			accept(nft.IsProtocol{Protocol: p.Protocol}, nft.ToPorts{First: p.first, Last: p.last})
		}
	}
}

// appendRule adds a rule unless the chain already has it.
func (b *chainBuilder) appendRule(r nft.Rule) {
	text := fmt.Sprint(r)
	if !b.seen[text] {
		b.seen[text] = true
		b.rules = append(b.rules, r)
	}
}
