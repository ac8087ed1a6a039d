package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var addressPair = []Field{Source, Destination}

func baseFragment() *Fragment {
	return &Fragment{
		Chains: map[string]Chain{
			"in": {Hook: &Hook{"filter", "forward", 0}, Rules: []Rule{{Lookup{"to", []Field{Destination}}}}},
		},
		Sets: map[string]Set{"to": {Key: []Field{Destination}, Values: Verdicts}, "pairs": {Key: addressPair}},
	}
}

func addressOf(n int) Addresses { return SingleAddress(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})) }

// drawFragment returns a random fragment with chains that jump to each other, its own sets, and elements in shared
// sets.
func drawFragment(t *rapid.T, key string) *Fragment {
	n := rapid.IntRange(0, 3).Draw(t, "chains")
	if n == 0 && rapid.Bool().Draw(t, "gone") {
		return nil
	}
	f := &Fragment{Chains: map[string]Chain{}, Sets: map[string]Set{}, Elements: map[string][]Element{}}
	for i := range n {
		rules := []Rule{{ToPorts{uint16(rapid.IntRange(1, 3).Draw(t, "port")), 3}}}
		if i > 0 {
			rules = append(rules, Rule{Decide{Verdict{"goto", fmt.Sprint(key, i-1)}}})
		}
		f.Chains[fmt.Sprint(key, i)] = Chain{Rules: rules}
		f.Elements["to"] = append(f.Elements["to"],
			Element{Key{Destination: addressOf(10*int(key[0]-'a') + i)}, VerdictValue("goto", fmt.Sprint(key, i))})
	}
	for range rapid.IntRange(0, 3).Draw(t, "pairs") {
		a := addressOf(rapid.IntRange(1, 4).Draw(t, "pair"))
		f.Elements["pairs"] = append(f.Elements["pairs"], Element{Key: Key{Source: a, Destination: a}})
	}
	if rapid.Bool().Draw(t, "set") {
		f.Sets[key+"-own"] = Set{Key: []Field{Source}}
		f.Elements[key+"-own"] = []Element{{Key: Key{Source: addressOf(rapid.IntRange(1, 4).Draw(t, "own"))}}}
	}
	return f
}

// fakeKernel simulates the kernel's table, and rejects what the kernel would reject.
type fakeKernel struct {
	chains   map[string]Chain
	sets     map[string]Set
	elements map[string]map[Key]Value
}

func (k *fakeKernel) apply(t *rapid.T, of *Table, c *Change) {
	for _, n := range c.AddSets {
		if _, exists := k.sets[n]; exists {
			t.Fatalf("adds the set %s, which is there", n)
		}
		k.sets[n], _ = of.Set(n)
		k.elements[n] = map[Key]Value{}
	}
	for _, n := range c.AddChains {
		if _, exists := k.chains[n]; exists {
			t.Fatalf("adds the chain %s, which is there", n)
		}
		k.chains[n] = Chain{Hook: of.Chain(n).Hook}
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
		ch, exists := k.chains[n]
		if !exists {
			t.Fatalf("sets rules of the chain %s, which is not there", n)
		}
		k.chains[n] = Chain{Hook: ch.Hook, Rules: of.Chain(n).Rules}
	}
	for n, list := range c.AddElements {
		for _, e := range list {
			if _, exists := k.elements[n][e.Key]; exists {
				t.Fatalf("adds %v to %s, where it is", e, n)
			}
			if _, exists := k.chains[e.Value.Verdict.Chain]; !exists && e.Value.Verdict.Chain != "" {
				t.Fatalf("leads to %s, which is not there", e.Value.Verdict.Chain)
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
	for n, ch := range k.chains {
		for _, r := range ch.Rules {
			if do, ok := r[0].(Decide); ok {
				if _, exists := k.chains[do.Chain]; !exists {
					t.Fatalf("%s leads to %s, which is gone", n, do.Chain)
				}
			}
		}
	}
	for n, all := range k.elements {
		for e, v := range all {
			if _, exists := k.chains[v.Verdict.Chain]; !exists && v.Verdict.Chain != "" {
				t.Fatalf("%v of %s leads to %s, which is gone", e, n, v.Verdict.Chain)
			}
		}
	}
}

// text returns the kernel's table in the format of Table.Text.
func (k *fakeKernel) text() string {
	t := &Table{Family: IPv4, Name: "t", chains: k.chains, sets: k.sets, elements: map[string]map[Key]heldElement{}}
	for n, all := range k.elements {
		t.elements[n] = map[Key]heldElement{}
		for e, v := range all {
			t.elements[n][e] = heldElement{v, 1}
		}
	}
	return t.Text()
}

// state returns the kernel's state as it would be read.
func (k *fakeKernel) state() KernelTable {
	f := KernelTable{Chains: map[string]KernelChain{}, Sets: map[string]uint64{}, Elements: k.elements}
	for n, c := range k.chains {
		marks := []uint64{}
		for _, r := range c.Rules {
			marks = append(marks, r.Mark(IPv4))
		}
		f.Chains[n] = KernelChain{c.Hook, marks}
	}
	for n, s := range k.sets {
		f.Sets[n] = s.Mark()
	}
	return f
}

func TestEveryChangeIsValidAndResultsInTheTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, err := NewTable(IPv4, "t", baseFragment())
		if err != nil {
			t.Fatal(err)
		}
		k := &fakeKernel{map[string]Chain{}, map[string]Set{}, map[string]map[Key]Value{}}
		wants := map[string]*Fragment{}
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 4).Draw(t, "puts") {
				key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
				f := drawFragment(t, key)
				wants[key] = f
				if err := table.Put(key, f); err != nil {
					t.Fatal(err)
				}
			}
			switch rapid.IntRange(0, 4).Draw(t, "how") {
			case 0: // read and compare the kernel's table, as after a restart
				c, ok := table.DiffFrom(k.state())
				if !ok {
					t.Fatal("cannot become what is wanted")
				}
				k.apply(t, table, c)
				table.MarkApplied()
			case 1: // the transaction fails; the next one contains everything
			default:
				k.apply(t, table, table.Changes())
				table.MarkApplied()
			}
		}
		k.apply(t, table, table.Changes())
		table.MarkApplied()
		rebuilt, err := NewTable(IPv4, "t", baseFragment())
		if err != nil {
			t.Fatal(err)
		}
		for key, f := range wants {
			if err := rebuilt.Put(key, f); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := k.text(), rebuilt.Text(); got != want {
			t.Fatalf("the kernel has\n%s\nwanted is\n%s", got, want)
		}
		if c := table.Changes(); !c.IsEmpty() {
			t.Fatalf("nothing to do is a change: %+v", c)
		}
		if c, ok := table.DiffFrom(k.state()); !ok || !c.IsEmpty() {
			t.Fatalf("what is as it should be is changed: %+v", c)
		}
	})
}

func TestConflictingFragmentsAreRejected(t *testing.T) {
	table, err := NewTable(IPv4, "t", baseFragment())
	if err != nil {
		t.Fatal(err)
	}
	to := func(chain string) map[string][]Element {
		return map[string][]Element{"to": {{Key{Destination: addressOf(1)}, VerdictValue("goto", chain)}}}
	}
	if err := table.Put("a", &Fragment{Chains: map[string]Chain{"x": {}}, Elements: to("x")}); err != nil {
		t.Fatal(err)
	}
	before := table.Text()
	for name, f := range map[string]*Fragment{
		"another's chain":         {Chains: map[string]Chain{"x": {}}},
		"another verdict":         {Chains: map[string]Chain{"y": {}}, Elements: to("y")},
		"a set that is not there": {Elements: map[string][]Element{"none": {{Key: Key{Source: addressOf(1)}}}}},
		"another's set":           {Sets: map[string]Set{"to": {Key: []Field{Source}}}},
		"two verdicts": {Chains: map[string]Chain{"y": {}}, Elements: map[string][]Element{
			"to": {{Key{Destination: addressOf(2)}, VerdictValue("goto", "y")},
				{Key{Destination: addressOf(2)}, VerdictValue("drop", "")}}}},
	} {
		if err := table.Put("b", f); err == nil || table.Text() != before {
			t.Errorf("%s: %v, and the table is\n%s", name, err, table.Text())
		}
	}
	table.MarkApplied()
	if err := table.Put("a", &Fragment{Chains: map[string]Chain{"z": {}}, Elements: to("z")}); err != nil {
		t.Errorf("an own element that changes: %v", err)
	}
	c := table.Changes()
	if len(c.DelElements["to"]) != 1 || len(c.AddElements["to"]) != 1 || !slices.Equal(c.DelChains, []string{"x"}) {
		t.Errorf("the change is %+v", c)
	}
}

func TestNetworkAddressesAreItsFirstAndLast(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0-10.255.255.255", "10.1.2.3/32": "10.1.2.3", "10.1.2.3/31": "10.1.2.2-10.1.2.3",
		"0.0.0.0/0":      "0.0.0.0-255.255.255.255",
		"192.0.2.128/25": "192.0.2.128-192.0.2.255", "fd00::/127": "fd00::-fd00::1",
		"fd00::/12": "fd00::-fd0f:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	} {
		if got := NetworkAddresses(netip.MustParsePrefix(in)).String(); got != want {
			t.Errorf("%s: %s, not %s", in, got, want)
		}
	}
}
