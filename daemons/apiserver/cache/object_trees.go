package cache

import "github.com/google/btree"

// objectTrees hold the objects of a kind in order, and their number in each namespace.
type objectTrees struct {
	byKey      *btree.BTreeG[*Entry]
	byField    []*btree.BTreeG[*Entry] // one for each of the kind's indexed fields
	namespaces *btree.BTreeG[namespaceCount]
}

// newObjectTrees returns trees of objects, ordered by their keys and by the given fields.
func newObjectTrees(fields []string, entries []*Entry) objectTrees {
	t := objectTrees{byKey: btree.NewG(32, byKey), namespaces: btree.NewG(32, byNamespace)}
	for _, name := range fields {
		t.byField = append(t.byField, btree.NewG(32, byField(name)))
	}
	counts := map[string]int{}
	for _, e := range entries {
		counts[e.Namespace]++
		t.byKey.ReplaceOrInsert(e)
		for _, tree := range t.byField {
			tree.ReplaceOrInsert(e)
		}
	}
	for namespace, n := range counts {
		t.namespaces.ReplaceOrInsert(namespaceCount{namespace, n})
	}
	return t
}

// clone returns a copy that later changes of t do not affect. It is not safe for concurrent use.
func (t *objectTrees) clone() objectTrees {
	c := objectTrees{byKey: t.byKey.Clone(), namespaces: t.namespaces.Clone()}
	for _, tree := range t.byField {
		c.byField = append(c.byField, tree.Clone())
	}
	return c
}

// set replaces the object of a key; nil deletes it. It returns the former object, if there was one.
func (t *objectTrees) set(key string, e *Entry) (prev *Entry, existed bool) {
	if e != nil {
		prev, existed = t.byKey.ReplaceOrInsert(e)
	} else {
		prev, existed = t.byKey.Delete(&Entry{Key: key})
	}
	for _, tree := range t.byField {
		if existed {
			tree.Delete(prev)
		}
		if e != nil {
			tree.ReplaceOrInsert(e)
		}
	}
	switch {
	case existed && e == nil:
		addToNamespace(t.namespaces, prev.Namespace, -1)
	case !existed && e != nil:
		addToNamespace(t.namespaces, e.Namespace, 1)
	}
	return prev, existed
}

func byKey(a, b *Entry) bool { return a.Key < b.Key }

func byField(name string) btree.LessFunc[*Entry] {
	return func(a, b *Entry) bool {
		x, _ := a.Field(name)
		y, _ := b.Field(name)
		if x != y {
			return x < y
		}
		return a.Key < b.Key
	}
}

// namespaceCount is the number of objects in a namespace.
type namespaceCount struct {
	namespace string
	count     int
}

func byNamespace(a, b namespaceCount) bool { return a.namespace < b.namespace }

func addToNamespace(spaces *btree.BTreeG[namespaceCount], namespace string, by int) {
	s, _ := spaces.Get(namespaceCount{namespace: namespace})
	if s.count += by; s.count <= 0 {
		spaces.Delete(namespaceCount{namespace: namespace})
		return
	}
	spaces.ReplaceOrInsert(namespaceCount{namespace, s.count})
}
