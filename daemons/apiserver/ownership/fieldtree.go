package ownership

import (
	"bytes"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// fieldTree is a set of fields, with the fields in the order of a fieldpath.Set. A nil tree is an empty set.
type fieldTree struct {
	element  string // encoded path element, such as `f:spec` or `k:{"name":"a"}`; not set for the root
	isMember bool   // the field itself is in the set
	children []*fieldTree
}

// member returns the tree with its own field added.
func member(t *fieldTree) *fieldTree {
	if t == nil {
		t = &fieldTree{}
	}
	t.isMember = true
	return t
}

// withChild returns the tree with a subtree added at a path element, which follows those of all other children.
func withChild(t *fieldTree, element string, child *fieldTree) *fieldTree {
	if child == nil {
		return t
	}
	if t == nil {
		t = &fieldTree{}
	}
	child.element = element
	t.children = append(t.children, child)
	return t
}

// clone returns a copy of the tree.
func (t *fieldTree) clone() *fieldTree {
	if t == nil {
		return nil
	}
	to := &fieldTree{t.element, t.isMember, make([]*fieldTree, len(t.children))}
	for i, c := range t.children {
		to.children[i] = c.clone()
	}
	return to
}

// without returns the tree without the field at a path, and without the fields below it if below is set.
func (t *fieldTree) without(path []string, below bool) *fieldTree {
	if t == nil {
		return nil
	}
	if len(path) > 0 {
		i := slices.IndexFunc(t.children, func(c *fieldTree) bool { return c.element == "f:"+path[0] })
		if i < 0 {
			return t
		}
		if t.children[i].without(path[1:], below) == nil {
			t.children = slices.Delete(t.children, i, i+1)
		}
	} else {
		t.isMember = false
		if below {
			t.children = nil
		}
	}
	if !t.isMember && len(t.children) == 0 {
		return nil
	}
	return t
}

// encode appends the set in the format FieldsV1.
func (t *fieldTree) encode(out []byte) []byte {
	out = append(out, '{')
	separate := false
	if t.isMember && len(t.children) > 0 {
		out, separate = append(out, `".":{}`...), true
	}
	for _, c := range t.children {
		if separate {
			out = append(out, ',')
		}
		out = append(out, '"')
		for i := range len(c.element) {
			if c.element[i] == '"' { // around the names and values of keys; isPlain allows no other escapes
				out = append(out, '\\')
			}
			out = append(out, c.element[i])
		}
		out = c.encode(append(out, '"', ':'))
		separate = true
	}
	return append(out, '}')
}

// set converts the tree to a set of the library.
func (t *fieldTree) set() (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if t == nil {
		return set, nil
	}
	return set, set.FromJSON(bytes.NewReader(t.encode(nil)))
}

// isPlain reports whether a string is its own JSON encoding, apart from the quotes.
func isPlain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&':
			return false
		}
	}
	return true
}
