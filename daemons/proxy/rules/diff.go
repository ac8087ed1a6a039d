package rules

import (
	"maps"
	"slices"
)

// Change is what makes one table another, in the order in which it can be done in
// one transaction: new chains, new sets and maps' elements, rules, then removals.
type Change struct {
	AddSets     []string
	AddChains   []string
	SetRules    []string // chains whose rules are replaced
	AddElements map[string]map[Dest]Verdict
	DelElements map[string]map[Dest]Verdict
	DelChains   []string
	DelSets     []string
}

// Empty reports whether there is nothing to do.
func (c *Change) Empty() bool {
	return len(c.AddSets)+len(c.AddChains)+len(c.SetRules)+len(c.AddElements)+len(c.DelElements)+len(c.DelChains)+len(c.DelSets) == 0
}

// Diff returns what turns have into want. What does not differ is not touched, so
// that a change costs what it concerns.
func Diff(have, want *Table) *Change {
	c := &Change{AddElements: map[string]map[Dest]Verdict{}, DelElements: map[string]map[Dest]Verdict{}}
	for _, name := range slices.Sorted(maps.Keys(want.Chains)) {
		old, ok := have.Chains[name]
		if !ok {
			c.AddChains = append(c.AddChains, name)
		}
		if !ok || !sameRules(old.Rules, want.Chains[name].Rules) {
			c.SetRules = append(c.SetRules, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have.Chains)) {
		if _, ok := want.Chains[name]; !ok {
			c.DelChains = append(c.DelChains, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Sets)) {
		if _, ok := have.Sets[name]; !ok {
			c.AddSets = append(c.AddSets, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have.Sets)) {
		if _, ok := want.Sets[name]; !ok {
			c.DelSets = append(c.DelSets, name)
		}
	}
	for name, m := range want.Maps {
		add, del := map[Dest]Verdict{}, map[Dest]Verdict{}
		for d, v := range m.Elements {
			if was, ok := have.Maps[name].Elements[d]; !ok || was != v {
				add[d] = v
				if ok {
					del[d] = was
				}
			}
		}
		for d, v := range have.Maps[name].Elements {
			if _, ok := m.Elements[d]; !ok {
				del[d] = v
			}
		}
		if len(add) > 0 {
			c.AddElements[name] = add
		}
		if len(del) > 0 {
			c.DelElements[name] = del
		}
	}
	return c
}

func sameRules(a, b []Rule) bool {
	return slices.EqualFunc(a, b, func(x, y Rule) bool { return x.String() == y.String() })
}

// Gone returns the endpoints that were and are no more: what the kernel remembers of
// connections to them that were never answered has to be forgotten, and of all to those of UDP, since no
// packet of theirs ever says that the connection is over: a new one from the same port would be sent
// after the old one. UDP services that had no endpoint are in it when they get one, for the same reason.
func Gone(have, want []Port) (endpoints []Endpoint, services []Port) {
	type id struct {
		key string
		to  string
	}
	still, had := map[id]bool{}, map[string]bool{}
	for i := range want {
		for _, e := range want[i].alive() {
			still[id{want[i].Key(), e.To.String()}] = true
		}
	}
	for i := range have {
		p := &have[i]
		had[p.Key()] = len(p.Endpoints) > 0
		for _, e := range p.alive() {
			if !still[id{p.Key(), e.To.String()}] {
				endpoints = append(endpoints, e)
			}
		}
	}
	for i := range want {
		p := &want[i]
		if p.Proto == UDP && len(p.Endpoints) > 0 && !had[p.Key()] {
			services = append(services, *p)
		}
	}
	return endpoints, services
}
