package load

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// kind is everything of which references start with the same word: machine, local…
type kind struct {
	keys   []string // of its nodes, in the order of declaration
	done   bool     // all of them have been evaluated
	values map[string]cty.Value
	all    cty.Value // values as one, cty.NilVal when it has to be made anew
}

func (k *kind) set(name string, v cty.Value) {
	k.values[name], k.all = v, cty.NilVal
}

// whole is an object of all that has been evaluated.
func (k *kind) whole() cty.Value {
	if k.all == cty.NilVal {
		k.all = cty.ObjectVal(k.values)
	}
	return k.all
}

// scope is what an expression with these references sees: what it refers to and no more, so that what it takes to
// evaluate a block does not grow with the number of blocks.
func (e *evaluator) scope(needs []hcl.Traversal) *hcl.EvalContext {
	s := &hcl.EvalContext{Functions: e.functions, Variables: map[string]cty.Value{"path": e.paths}}
	parts := map[string]map[string]cty.Value{}
	for _, t := range needs {
		root := t.RootName()
		k := e.kinds[root]
		if k == nil {
			continue
		}
		name, ok := second(t)
		if !ok {
			s.Variables[root] = e.whole(root)
			continue
		}
		v, ok := k.values[name]
		if n := e.nodes[root+"."+name]; n != nil && n.call != nil {
			v, ok = n.call.result(), true
		}
		if ok {
			if parts[root] == nil {
				parts[root] = map[string]cty.Value{}
			}
			parts[root][name] = v
		}
	}
	for root, values := range parts {
		if _, whole := s.Variables[root]; !whole {
			s.Variables[root] = nest(root, values)
		}
	}
	return s
}

// everything is what an expression at the top level sees when all is evaluated.
func (e *evaluator) everything() *hcl.EvalContext {
	s := &hcl.EvalContext{Functions: e.functions, Variables: map[string]cty.Value{"path": e.paths}}
	for _, root := range roots {
		s.Variables[root] = e.whole(root)
	}
	return s
}

// whole is everything of a kind.
func (e *evaluator) whole(root string) cty.Value {
	k := e.kinds[root]
	if root == "data" {
		return nest(root, k.values)
	}
	if root != "module" {
		return k.whole()
	}
	values := map[string]cty.Value{}
	for _, key := range k.keys {
		values[e.nodes[key].name] = e.nodes[key].call.result()
	}
	return cty.ObjectVal(values)
}

// nest is an object of values by name; data has two names, the kind's and its own.
func nest(root string, values map[string]cty.Value) cty.Value {
	if root != "data" {
		return cty.ObjectVal(values)
	}
	kinds := map[string]map[string]cty.Value{}
	for name, v := range values {
		kind, name, _ := strings.Cut(name, ".")
		if kinds[kind] == nil {
			kinds[kind] = map[string]cty.Value{}
		}
		kinds[kind][name] = v
	}
	nested := map[string]cty.Value{}
	for kind, values := range kinds {
		nested[kind] = cty.ObjectVal(values)
	}
	return cty.ObjectVal(nested)
}
