package nft

import (
	"maps"
	"slices"
)

// Change lists the differences between a table and the kernel. The fields are in an order that is valid within one
// transaction: new sets and chains, removed elements, rules, new elements, then removed chains and sets.
type Change struct {
	AddSets     []string
	AddChains   []string
	DelElements map[string][]Element // by set name
	SetRules    []string             // names of the chains whose rules are replaced
	AddElements map[string][]Element
	DelChains   []string
	DelSets     []string
}

// IsEmpty reports whether there is no difference.
func (c *Change) IsEmpty() bool {
	return len(c.AddSets)+len(c.AddChains)+len(c.DelElements)+len(c.SetRules)+len(c.AddElements)+len(c.DelChains)+len(
		c.DelSets,
	) == 0
}

// kernelState holds the kernel's state of everything that was changed since the last call of MarkApplied. nil
// marks an item that the kernel does not have.
type kernelState struct {
	chains   map[string]*Chain
	sets     map[string]*Set
	elements map[string]map[Key]*Value
}

func (b *kernelState) clear() {
	*b = kernelState{map[string]*Chain{}, map[string]*Set{}, map[string]map[Key]*Value{}}
}

func (b *kernelState) saveChain(t *Table, name string) {
	if _, ok := b.chains[name]; ok {
		return
	}
	b.chains[name] = nil
	if c, ok := t.chains[name]; ok {
		b.chains[name] = &c
	}
}

func (b *kernelState) saveSet(t *Table, name string) {
	if _, ok := b.sets[name]; ok {
		return
	}
	b.sets[name] = nil
	if s, ok := t.sets[name]; ok {
		b.sets[name] = &s
	}
}

func (b *kernelState) saveElement(t *Table, set string, k Key) {
	all := b.elements[set]
	if all == nil {
		all = map[Key]*Value{}
		b.elements[set] = all
	}
	if _, ok := all[k]; ok {
		return
	}
	all[k] = nil
	if h, ok := t.elements[set][k]; ok {
		all[k] = &h.value
	}
}

// Changes returns the differences since the last call of MarkApplied.
func (t *Table) Changes() *Change {
	c := &Change{}
	for name, before := range t.before.sets {
		switch _, ok := t.sets[name]; {
		case before == nil && ok:
			c.AddSets = append(c.AddSets, name)
		case before != nil && !ok:
			c.DelSets = append(c.DelSets, name)
		}
	}
	for name, before := range t.before.chains {
		after, ok := t.chains[name]
		switch {
		case before == nil && ok:
			c.AddChains, c.SetRules = append(c.AddChains, name), append(c.SetRules, name)
		case before != nil && !ok:
			c.DelChains = append(c.DelChains, name)
		case before != nil && !before.isSame(after, t.Family):
			c.SetRules = append(c.SetRules, name)
		}
	}
	for set, keys := range t.before.elements {
		if _, ok := t.sets[set]; !ok {
			continue // its elements are removed with it
		}
		for k, before := range keys {
			after, ok := t.elements[set][k]
			c.addElement(set, k, before, after.value, ok)
		}
	}
	c.sort()
	return c
}

// addElement records the difference of one element. old is nil if the kernel does not have it. exists reports
// whether the table has it.
func (c *Change) addElement(set string, k Key, old *Value, value Value, exists bool) {
	if old != nil && exists && *old == value {
		return
	}
	if old != nil {
		c.DelElements = appendElement(c.DelElements, set, Element{k, *old})
	}
	if exists {
		c.AddElements = appendElement(c.AddElements, set, Element{k, value})
	}
}

func appendElement(all map[string][]Element, set string, e Element) map[string][]Element {
	if all == nil {
		all = map[string][]Element{}
	}
	all[set] = append(all[set], e)
	return all
}

func (c *Change) sort() {
	for _, names := range [][]string{c.AddSets, c.DelSets, c.AddChains, c.DelChains, c.SetRules} {
		slices.Sort(names)
	}
	for _, all := range []map[string][]Element{c.AddElements, c.DelElements} {
		for _, list := range all {
			slices.SortFunc(list, func(a, b Element) int { return a.Key.Compare(b.Key) })
		}
	}
}

// MarkApplied marks that the kernel has the current table.
func (t *Table) MarkApplied() { t.before.clear() }

// KernelTable is the kernel's state of a table: its chains with the marks of their rules, its sets, and the elements of
// the sets that only fragments fill.
type KernelTable struct {
	Chains   map[string]KernelChain
	Sets     map[string]uint64 // mark of each set
	Elements map[string]map[Key]Value
}

// KernelChain is a chain in the kernel.
type KernelChain struct {
	Hook  *Hook
	Rules []uint64 // marks of the rules
}

// DiffFrom returns the changes from the kernel's state to the table. It returns false if a set or a hook with the same
// name has another type. The whole table must then be replaced, which is the change against an empty
// KernelTable.
func (t *Table) DiffFrom(f KernelTable) (*Change, bool) {
	c := &Change{}
	for name, after := range t.sets {
		switch mark, ok := f.Sets[name]; {
		case !ok:
			c.AddSets = append(c.AddSets, name)
		case mark != after.Mark():
			return nil, false
		}
	}
	for name := range f.Sets {
		if _, wanted := t.sets[name]; !wanted {
			c.DelSets = append(c.DelSets, name)
		}
	}
	for name, after := range t.chains {
		before, ok := f.Chains[name]
		switch {
		case !ok:
			c.AddChains = append(c.AddChains, name)
		case (before.Hook == nil) != (after.Hook == nil) || before.Hook != nil && *before.Hook != *after.Hook:
			return nil, false
		}
		if !ok ||
			!slices.EqualFunc(before.Rules, after.Rules,
				func(mark uint64, r Rule) bool { return mark == r.Mark(t.Family) }) {
			c.SetRules = append(c.SetRules, name)
		}
	}
	for name := range f.Chains {
		if _, wanted := t.chains[name]; !wanted {
			c.DelChains = append(c.DelChains, name)
		}
	}
	for set, all := range t.elements {
		if t.sets[set].Timeout > 0 {
			continue
		}
		for k, after := range all {
			before, ok := f.Elements[set][k]
			if ok {
				c.addElement(set, k, &before, after.value, true)
			} else {
				c.addElement(set, k, nil, after.value, true)
			}
		}
		for k, before := range f.Elements[set] {
			if _, wanted := all[k]; !wanted {
				c.addElement(set, k, &before, Value{}, false)
			}
		}
	}
	c.sort()
	return c, true
}

// Chain returns the chain with the given name.
func (t *Table) Chain(name string) Chain { return t.chains[name] }

// Set returns the set with the given name.
func (t *Table) Set(name string) (Set, bool) {
	s, ok := t.sets[name]
	return s, ok
}

// FilledSets returns the sorted names of the sets that only fragments fill.
func (t *Table) FilledSets() []string {
	names := slices.Sorted(maps.Keys(t.sets))
	return slices.DeleteFunc(names, func(n string) bool { return t.sets[n].Timeout > 0 })
}
