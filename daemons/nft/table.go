package nft

import (
	"fmt"
	"maps"
	"slices"
)

// Table is a set of rules of one family. It is not safe for concurrent use.
type Table struct {
	Family Family
	Name   string

	fragments map[string]*Fragment
	chains    map[string]Chain
	sets      map[string]Set
	elements  map[string]map[Key]heldElement // by set name
	before    kernelState
}

// heldElement is an element's value, and the number of fragments that have the element.
type heldElement struct {
	value   Value
	holders int
}

// NewTable returns a table with the given base.
func NewTable(family Family, name string, base *Fragment) (*Table, error) {
	t := &Table{
		Family:    family,
		Name:      name,
		fragments: map[string]*Fragment{},
		chains:    map[string]Chain{},
		sets:      map[string]Set{},
		elements:  map[string]map[Key]heldElement{},
	}
	t.before.clear()
	return t, t.Put("", base)
}

// Put sets the fragment with a key, replacing an existing one. nil removes it. It returns an error and changes nothing
// in three cases: a name is used by another fragment, an element has another value in another fragment, or a set would
// change its type.
func (t *Table) Put(key string, f *Fragment) error {
	before := t.fragments[key]
	if f == nil {
		f = &Fragment{}
	}
	if before == nil {
		before = &Fragment{}
	}
	if err := t.checkConflicts(before, f); err != nil {
		return fmt.Errorf("put %q into the table %s: %w", key, t.Name, err)
	}
	t.updateSets(before, f)
	t.updateChains(before, f)
	t.updateElements(before, f)
	if len(f.Chains)+len(f.Sets)+len(f.Elements) == 0 {
		delete(t.fragments, key)
	} else {
		t.fragments[key] = f
	}
	return nil
}

// Has reports whether the table has a fragment with the key.
func (t *Table) Has(key string) bool { return t.fragments[key] != nil }

// Keys returns the sorted keys of all fragments without the base.
func (t *Table) Keys() []string {
	keys := slices.Sorted(maps.Keys(t.fragments))
	return slices.DeleteFunc(keys, func(k string) bool { return k == "" })
}

func (t *Table) checkConflicts(before, f *Fragment) error {
	for name := range f.Chains {
		if _, own := before.Chains[name]; !own {
			if _, taken := t.chains[name]; taken {
				return fmt.Errorf("another fragment has a chain %s", name)
			}
		}
	}
	for name, s := range f.Sets {
		current, ok := t.sets[name]
		if _, own := before.Sets[name]; ok && !own {
			return fmt.Errorf("another fragment has a set %s", name)
		}
		if existing := t.before.sets[name]; ok && !current.isSame(s) || existing != nil && !existing.isSame(s) {
			return fmt.Errorf("the set %s becomes of another kind", name)
		}
	}
	for name, list := range f.Elements {
		_, own := f.Sets[name]
		if s, ok := t.sets[name]; !own && (!ok || s.Timeout > 0) {
			return fmt.Errorf("no set %s takes elements", name)
		}
		var mine map[Key]int // number of holders of an element that belong to this fragment
		for _, e := range list {
			current, ok := t.elements[name][e.Key]
			if !ok || current.value == e.Value {
				continue
			}
			if mine == nil {
				mine = countElements(before.Elements[name])
			}
			if current.holders > mine[e.Key] {
				return fmt.Errorf("of %s in %s another fragment says something else", e.text(t.sets[name]), name)
			}
		}
		values := make(map[Key]Value, len(list))
		for _, e := range list {
			if v, twice := values[e.Key]; twice && v != e.Value {
				return fmt.Errorf("%s is two things in %s", e.text(t.sets[name]), name)
			}
			values[e.Key] = e.Value
		}
	}
	return nil
}

func countElements(list []Element) map[Key]int {
	n := map[Key]int{}
	for _, e := range list {
		n[e.Key]++
	}
	return n
}

func (t *Table) updateSets(before, f *Fragment) {
	for name, s := range f.Sets {
		if _, own := before.Sets[name]; !own {
			t.before.saveSet(t, name)
			t.sets[name] = s
			t.elements[name] = map[Key]heldElement{}
		}
	}
	for name := range before.Sets {
		if _, stays := f.Sets[name]; !stays {
			t.before.saveSet(t, name)
			for k := range t.elements[name] {
				t.before.saveElement(t, name, k)
			}
			delete(t.sets, name)
			delete(t.elements, name)
		}
	}
}

func (t *Table) updateChains(before, f *Fragment) {
	for name, c := range f.Chains {
		if old, own := before.Chains[name]; !own || !old.isSame(c, t.Family) {
			t.before.saveChain(t, name)
		}
		t.chains[name] = c
	}
	for name := range before.Chains {
		if _, stays := f.Chains[name]; !stays {
			t.before.saveChain(t, name)
			delete(t.chains, name)
		}
	}
}

func (t *Table) updateElements(before, f *Fragment) {
	for name, list := range before.Elements {
		all := t.elements[name]
		if all == nil {
			continue // the set was removed with its elements
		}
		for _, e := range list {
			t.before.saveElement(t, name, e.Key)
			if h := all[e.Key]; h.holders > 1 {
				all[e.Key] = heldElement{h.value, h.holders - 1}
			} else {
				delete(all, e.Key)
			}
		}
	}
	for name, list := range f.Elements {
		all := t.elements[name]
		for _, e := range list {
			t.before.saveElement(t, name, e.Key)
			all[e.Key] = heldElement{e.Value, all[e.Key].holders + 1}
		}
	}
}

func (s Set) isSame(o Set) bool {
	return s.Values == o.Values && s.Ranges == o.Ranges && s.Timeout == o.Timeout && slices.Equal(s.Key, o.Key)
}

func (c Chain) isSame(o Chain, f Family) bool {
	if (c.Hook == nil) != (o.Hook == nil) || c.Hook != nil && *c.Hook != *o.Hook {
		return false
	}
	return slices.EqualFunc(c.Rules, o.Rules, func(a, b Rule) bool { return a.text(f) == b.text(f) })
}

// BaseChains returns the sorted names of the base chains.
func (t *Table) BaseChains() (names []string) {
	for name, c := range t.fragments[""].Chains {
		if c.Hook != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
