package policy

import (
	"net/netip"
	"slices"
	"strings"

	"clusterctl/daemons/nft"
)

// fakeKernel simulates a table in the kernel and its processing of packets.
type fakeKernel struct {
	family   nft.Family
	chains   map[string]nft.Chain
	sets     map[string]nft.Set
	elements map[string]map[nft.Key]nft.Value
}

func newFakeKernel(f nft.Family) *fakeKernel {
	return &fakeKernel{f, map[string]nft.Chain{}, map[string]nft.Set{}, map[string]map[nft.Key]nft.Value{}}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// apply applies the changes of a table, and fails the test if the kernel would reject them.
func (k *fakeKernel) apply(t fataler, table *nft.Table) {
	t.Helper()
	c := table.Changes()
	for _, n := range c.AddSets {
		k.sets[n], _ = table.Set(n)
		k.elements[n] = map[nft.Key]nft.Value{}
	}
	for _, n := range c.AddChains {
		k.chains[n] = nft.Chain{Hook: table.Chain(n).Hook}
	}
	for n, list := range c.DelElements {
		for _, e := range list {
			if _, exists := k.elements[n][e.Key]; !exists {
				t.Fatalf("takes %v from %s, where it is not", e, n)
			}
			delete(k.elements[n], e.Key)
		}
	}
	for _, n := range c.SetRules {
		k.chains[n] = nft.Chain{Hook: k.chains[n].Hook, Rules: table.Chain(n).Rules}
	}
	for n, list := range c.AddElements {
		for _, e := range list {
			if _, exists := k.elements[n][e.Key]; exists {
				t.Fatalf("adds %v to %s, where it is", e, n)
			}
			k.elements[n][e.Key] = e.Value
		}
	}
	for _, n := range c.DelChains {
		delete(k.chains, n)
	}
	for _, n := range c.DelSets {
		delete(k.sets, n)
		delete(k.elements, n)
	}
	table.MarkApplied()
	k.check(t)
}

// check verifies that all referenced chains and sets exist, and that ranges do not overlap.
func (k *fakeKernel) check(t fataler) {
	t.Helper()
	chain := func(from, to string) {
		if _, exists := k.chains[to]; to != "" && !exists {
			t.Fatalf("%s leads to the chain %s, which is not there", from, to)
		}
	}
	for n, c := range k.chains {
		if len(n) > 127 {
			t.Fatalf("the name %s is too long", n)
		}
		for _, r := range c.Rules {
			for _, s := range r {
				switch s := s.(type) {
				case nft.InSet:
					if _, exists := k.sets[s.Set]; !exists {
						t.Fatalf("%s looks into the set %s, which is not there", n, s.Set)
					}
				case nft.Decide:
					chain(n, s.Chain)
				case nft.Mark:
					if k.chains[n].Hook != nil {
						t.Fatalf("%s marks all packets", n)
					}
				}
			}
		}
	}
	for n, all := range k.elements {
		var last netip.Addr
		for _, key := range slices.SortedFunc(keys(all), nft.Key.Compare) {
			chain(n, all[key].Verdict.Chain)
			if !k.sets[n].Ranges {
				continue
			}
			a := key.Source
			if !a.First.IsValid() {
				a = key.Destination
			}
			if last.IsValid() && a.First.Compare(last) <= 0 {
				t.Fatalf("%s of %s overlaps with what is before it", a, n)
			}
			last = a.LastAddress()
		}
	}
}

func keys(m map[nft.Key]nft.Value) func(func(nft.Key) bool) {
	return func(yield func(nft.Key) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// packet is the first packet of a connection, unless known is set.
type packet struct {
	from, to          netip.Addr
	protocol          uint8
	port              uint16
	icmp              uint8
	isKnown           bool
	mark              uint32
	in                string // input interface
	hasWrongInterface bool   // the sender is not reached by that interface
	onLink            bool   // no router has forwarded it
}

// isForwarded reports whether a forwarded packet passes the base chains.
func (k *fakeKernel) isForwarded(t fataler, p packet) bool {
	t.Helper()
	return k.isPassed(t, "forward", p)
}

// isAccepted reports whether a packet for the machine itself passes the base chains.
func (k *fakeKernel) isAccepted(t fataler, p packet) bool {
	t.Helper()
	return k.isPassed(t, "input", p)
}

func (k *fakeKernel) isPassed(t fataler, hook string, p packet) bool {
	t.Helper()
	var base []string
	for n, c := range k.chains {
		if c.Hook != nil && c.Hook.Name == hook {
			base = append(base, n)
		}
	}
	slices.SortFunc(base, func(a, b string) int { return int(k.chains[a].Hook.Priority - k.chains[b].Hook.Priority) })
	for _, n := range base {
		if k.walk(t, n, &p, 0) == "drop" {
			return false
		}
	}
	if p.mark != 0 {
		t.Fatalf("a packet keeps the mark %#x", p.mark)
	}
	return true
}

// walk returns the verdict of a chain, or "return" at its end.
func (k *fakeKernel) walk(t fataler, chain string, p *packet, depth int) string {
	if depth > 16 { // the kernel's limit
		t.Fatalf("the chain %s is too deep", chain)
	}
	for _, r := range k.chains[chain].Rules {
		v, matches := k.rule(t, r, p)
		if !matches || v.Action == "" {
			continue
		}
		switch v.Action {
		case "jump":
			if v := k.walk(t, v.Chain, p, depth+1); v != "return" {
				return v
			}
		case "goto":
			return k.walk(t, v.Chain, p, depth+1)
		default:
			return v.Action
		}
	}
	return "return"
}

func (k *fakeKernel) rule(t fataler, r nft.Rule, p *packet) (v nft.Verdict, matches bool) {
	for _, s := range r {
		ok := false
		switch s := s.(type) {
		case nft.EstablishedConnection:
			ok = p.isKnown
		case nft.NewConnection:
			ok = !p.isKnown
		case nft.IsProtocol:
			ok = p.protocol == s.Protocol
		case nft.WrongInterface:
			ok = p.hasWrongInterface
		case nft.ICMPv6Types:
			ok = s.First <= p.icmp && p.icmp <= s.Last
		case nft.OnLink:
			ok = p.onLink
		case nft.ToPorts:
			ok = s.First <= p.port && p.port <= s.Last
		case nft.FromInterface:
			ok = strings.HasPrefix(p.in, s.Prefix) != s.Not
		case nft.FromNet:
			ok = s.Net.Contains(p.from) != s.Not
		case nft.ToNet:
			ok = s.Net.Contains(p.to) != s.Not
		case nft.InSet:
			_, exists := k.find(s.Set, s.Key, p)
			ok = exists != s.Not
		case nft.Lookup:
			found, exists := k.find(s.Map, s.Key, p)
			v, ok = found.Verdict, exists
		case nft.Mark:
			p.mark, ok = p.mark|s.Bits, true
		case nft.Marked:
			ok = p.mark&s.Bits != 0
			p.mark &^= s.Bits
		case nft.Decide:
			v, ok = s.Verdict, true
		default:
			t.Fatalf("the model does not know %T", s)
		}
		if !ok {
			return v, false
		}
	}
	return v, true
}

// find looks up a packet in a set. The kernel compares bytes: the rule determines which fields are loaded, and the set
// determines their position in an element.
func (k *fakeKernel) find(name string, fields []nft.Field, p *packet) (nft.Value, bool) {
	set := k.sets[name]
	var key nft.Key
	for i, f := range fields {
		a := p.from
		if f == nft.Destination {
			a = p.to
		}
		switch set.Key[i] {
		case nft.Source:
			key.Source = nft.SingleAddress(a)
		case nft.Destination:
			key.Destination = nft.SingleAddress(a)
		case nft.Protocol:
			key.Protocol = p.protocol
		case nft.Port:
			key.Port = p.port
		}
	}
	if !set.Ranges {
		v, exists := k.elements[name][key]
		return v, exists
	}
	at := key.Source.First
	if !at.IsValid() {
		at = key.Destination.First
	}
	for e, v := range k.elements[name] {
		a := e.Source
		if !a.First.IsValid() {
			a = e.Destination
		}
		if a.First.Compare(at) <= 0 && at.Compare(a.LastAddress()) <= 0 {
			return v, true
		}
	}
	return nft.Value{}, false
}
