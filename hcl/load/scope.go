package load

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// declarationKind holds the declarations whose references start with the same word, such as machine or local.
type declarationKind struct {
	keys       []string // keys of its nodes, in the order of declaration
	isComplete bool     // all nodes have been evaluated
	values     map[string]cty.Value
	object     cty.Value // values as one object; cty.NilVal if it is outdated
}

func (k *declarationKind) set(name string, v cty.Value) {
	k.values[name], k.object = v, cty.NilVal
}

// wholeObject returns an object with all values evaluated so far.
func (k *declarationKind) wholeObject() cty.Value {
	if k.object == cty.NilVal {
		k.object = cty.ObjectVal(k.values)
	}
	return k.object
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
		name, ok := secondName(t)
		if !ok {
			s.Variables[root] = e.kindValue(root)
			continue
		}
		v, ok := k.values[name]
		if n := e.nodes[root+"."+name]; n != nil && n.call != nil {
			v, ok = n.call.moduleValue(), true
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
			s.Variables[root] = nestByName(root, values)
		}
	}
	return s
}

// fullScope returns the scope of expressions at the top level after everything has been evaluated.
func (e *evaluator) fullScope() *hcl.EvalContext {
	s := &hcl.EvalContext{Functions: e.functions, Variables: map[string]cty.Value{"path": e.paths}}
	for _, root := range referenceRoots {
		s.Variables[root] = e.kindValue(root)
	}
	return s
}

// kindValue returns the value of all declarations of a kind.
func (e *evaluator) kindValue(root string) cty.Value {
	k := e.kinds[root]
	if root == "data" {
		return nestByName(root, k.values)
	}
	if root != "module" {
		return k.wholeObject()
	}
	values := map[string]cty.Value{}
	for _, key := range k.keys {
		values[e.nodes[key].name] = e.nodes[key].call.moduleValue()
	}
	return cty.ObjectVal(values)
}

// nestByName returns an object of values by name. The names of data have two parts and become nested objects.
func nestByName(root string, values map[string]cty.Value) cty.Value {
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
