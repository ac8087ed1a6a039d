package load

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// kind holds the declarations whose references start with the same word, such as machine or local.
type kind struct {
	keys   []string // keys of its nodes, in the order of declaration
	done   bool     // all nodes have been evaluated
	values map[string]cty.Value
	all    cty.Value // values as one object; cty.NilVal if it is outdated
}

func (k *kind) set(name string, v cty.Value) {
	k.values[name], k.all = v, cty.NilVal
}

// whole returns an object with all values evaluated so far.
func (k *kind) whole() cty.Value {
	if k.all == cty.NilVal {
		k.all = cty.ObjectVal(k.values)
	}
	return k.all
}

// scope returns the scope of an expression with these references. It contains only what they refer to, so that the cost
// of evaluating a block does not grow with the number of blocks.
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

// everything returns the scope of expressions at the top level after everything has been evaluated.
func (e *evaluator) everything() *hcl.EvalContext {
	s := &hcl.EvalContext{Functions: e.functions, Variables: map[string]cty.Value{"path": e.paths}}
	for _, root := range roots {
		s.Variables[root] = e.whole(root)
	}
	return s
}

// whole returns the value of all declarations of a kind.
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

// nest returns an object of values by name. The names of data have two parts and become nested objects.
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
