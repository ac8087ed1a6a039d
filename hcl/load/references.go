package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"clusterctl/hcl/block"
)

// roots are the first words of references to declarations. bound are the first words of references that are not to
// declarations.
var (
	referenceRoots = []string{
		"var",
		"local",
		"cluster",
		"machine",
		"image",
		"workload",
		"storage_class",
		"load_balancer",
		"git_source",
		"helm_release",
		"kustomization",
		"module",
		"data",
	}
	scopedRoots = []string{"path", "each", "count", "self"}
)

// Roots returns the first words of references.
func Roots() []string { return append(slices.Clone(referenceRoots), scopedRoots...) }

// secondName returns the name in a reference; for data it returns TYPE.NAME.
func secondName(t hcl.Traversal) (string, bool) {
	if len(t) < 2 {
		return "", false
	}
	step, ok := t[1].(hcl.TraverseAttr)
	if !ok || t.RootName() != "data" {
		return step.Name, ok
	}
	if len(t) < 3 {
		return "", false
	}
	name, ok := t[2].(hcl.TraverseAttr)
	return step.Name + "." + name.Name, ok
}

// resolve evaluates what a reference names, or returns an error if there is no such thing.
func (e *evaluator) resolve(t hcl.Traversal, from string, path []string) hcl.Diagnostics {
	root := t.RootName()
	if words := append(slices.Clone(referenceRoots), scopedRoots...); !slices.Contains(words, root) {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Unknown reference",
			Detail: fmt.Sprintf("Nothing is called %q.%s References start with one of %s.", root,
				block.Suggest(root, words), strings.Join(words, ", ")), Subject: t.SourceRange().Ptr()}}
	}
	if slices.Contains(scopedRoots, root) {
		return e.nodes[from].checkRepetition(t)
	}
	name, ok := secondName(t)
	if !ok {
		return e.evaluateAll(root, from, path)
	}
	key := root + "." + name
	if n, ok := e.nodes[key]; ok {
		if n.call == nil {
			return e.evaluate(key, path)
		}
		if diags := e.enterModule(n, key, path); diags.HasErrors() || n.hasFailed {
			return diags
		}
		return e.evaluateOutputs(n, t, append(path, e.prefix+key))
	}
	what := map[string]string{"var": "variable", "local": "local value"}[root]
	if what == "" {
		what = root
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Unknown reference",
		Detail: fmt.Sprintf("There is no %s %q.%s", what, name,
			block.Suggest(name, e.kinds[root].names())), Subject: t.SourceRange().Ptr()}}
}

// names returns the sorted names of a kind's nodes.
func (k *declarationKind) names() (list []string) {
	for _, key := range k.keys {
		_, name, _ := strings.Cut(key, ".")
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (e *evaluator) evaluateAll(root, from string, path []string) (diags hcl.Diagnostics) {
	k := e.kinds[root]
	if k.isComplete {
		return nil
	}
	own := false
	for _, key := range k.keys {
		if key == from {
			own = true
			continue
		}
		if n := e.nodes[key]; n.call != nil {
			if diags = append(diags, e.enterModule(n, key, path)...); !n.hasFailed {
				diags = append(diags, e.evaluateOutputs(n, nil, append(path, e.prefix+key))...)
			}
			continue
		}
		diags = append(diags, e.evaluate(key, path)...)
	}
	k.isComplete = !own && !diags.HasErrors()
	return diags
}

// references returns the references in a node's expressions.
func (n *node) references() []hcl.Traversal {
	switch {
	case n.variable != nil:
		return nil
	case n.expr != nil:
		return n.expr.Variables()
	case n.call != nil:
		return callReferences(n.block)
	}
	body, ok := n.body.(*hclsyntax.Body)
	if !ok {
		return jsonReferences(n.body)
	}
	return bodyReferences(body, nil)
}

// bodyReferences returns the references in the expressions of a body. bound are the iterator names of enclosing dynamic
// blocks. depends_on is left out, because it does not use values; see order.go.
func bodyReferences(body *hclsyntax.Body, bound []string) []hcl.Traversal {
	var list []hcl.Traversal
	add := func(expr hclsyntax.Expression, bound []string) {
		for _, t := range expr.Variables() {
			if !slices.Contains(bound, t.RootName()) {
				list = append(list, t)
			}
		}
	}
	names := make([]string, 0, len(body.Attributes))
	for name := range body.Attributes {
		if name != "depends_on" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		add(body.Attributes[name].Expr, bound)
	}
	for _, b := range body.Blocks {
		// paths in ignore_changes are not references
		if b.Type == "lifecycle" && b.Body.Attributes["ignore_changes"] != nil {
			inner := *b.Body
			inner.Attributes = maps.Clone(b.Body.Attributes)
			delete(inner.Attributes, "ignore_changes")
			list = append(list, bodyReferences(&inner, bound)...)
			continue
		}
		if b.Type != "dynamic" || len(b.Labels) != 1 {
			list = append(list, bodyReferences(b.Body, bound)...)
			continue
		}
		iterator := b.Labels[0]
		inner := bound
		for _, name := range slices.Sorted(maps.Keys(b.Body.Attributes)) {
			a := b.Body.Attributes[name]
			if name == "iterator" {
				if word := hcl.ExprAsKeyword(a.Expr); word != "" {
					iterator = word
				}
			}
		}
		inner = append(slices.Clone(bound), iterator)
		for _, name := range slices.Sorted(maps.Keys(b.Body.Attributes)) {
			switch name {
			case "iterator":
			case "labels":
				add(b.Body.Attributes[name].Expr, inner)
			default:
				add(b.Body.Attributes[name].Expr, bound)
			}
		}
		for _, content := range b.Body.Blocks {
			list = append(list, bodyReferences(content.Body, inner)...)
		}
	}
	return list
}
