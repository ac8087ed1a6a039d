package load

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"clusterctl/hcl/block"
)

// evaluator evaluates declarations in the order of their references.
type evaluator struct {
	c         *Configuration
	dir       string
	context   *block.Context
	functions map[string]function.Function
	nodes     map[string]*node
	order     []string
	values    map[string]map[string]cty.Value // "var" → "nodes" → value
}

// node is something that can be evaluated: var.x, local.x, machine.x…
type node struct {
	root, name string
	at         hcl.Range
	body       hcl.Body       // of a block
	block      *hcl.Block     // of a block
	expr       hcl.Expression // of a local
	variable   *variable
	state      int  // 0 waiting, 1 under way, 2 done
	failed     bool // it, or what it needs, is wrong, and that has been said
}

// The names at the start of references.
var roots = []string{"var", "local", "cluster", "machine", "image", "workload", "path", "each", "count"}

func newEvaluator(c *Configuration, dir string) *evaluator {
	e := &evaluator{c: c, dir: dir, nodes: map[string]*node{}, values: map[string]map[string]cty.Value{}}
	for _, r := range []string{"var", "local", "cluster", "machine", "image", "workload"} {
		e.values[r] = map[string]cty.Value{}
	}
	e.functions = Functions(dir)
	e.context = &block.Context{Digest: digest, Path: inDir(dir), Glob: glob(dir), YAML: readYAML}
	return e
}

// declare takes in all blocks and finds duplicates.
func (e *evaluator) declare(blocks hcl.Blocks) (diags hcl.Diagnostics) {
	add := func(key string, n *node) {
		if other, ok := e.nodes[key]; ok {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Duplicate declaration",
				Detail: fmt.Sprintf("%s is already declared at %s:%d. Give one of them another name.", key, other.at.Filename, other.at.Start.Line), Subject: n.at.Ptr()})
			return
		}
		e.nodes[key] = n
		e.order = append(e.order, key)
	}
	for _, b := range blocks {
		for i, l := range b.Labels {
			if (b.Type != "object") && !hclsyntax.ValidIdentifier(l) {
				diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid name", Detail: "A name starts with a letter and has letters, digits, dashes and underscores only.", Subject: b.LabelRanges[i].Ptr()})
			}
		}
		switch b.Type {
		case "locals":
			attributes, more := b.Body.JustAttributes()
			diags = append(diags, more...)
			for _, name := range slices.Sorted(maps.Keys(attributes)) {
				a := attributes[name]
				add("local."+name, &node{root: "local", name: name, at: a.Range, expr: a.Expr})
			}
		case "variable":
			v, more := decodeVariable(b)
			diags = append(diags, more...)
			add("var."+b.Labels[0], &node{root: "var", name: b.Labels[0], at: b.DefRange, block: b, variable: v})
		default:
			key := b.Type + "." + strings.Join(b.Labels, ".")
			if b.Type == "object" { // the namespace is part of its name: hcl/block tells duplicates
				key = fmt.Sprintf("%s@%s:%d", key, b.DefRange.Filename, b.DefRange.Start.Line)
			}
			add(key, &node{root: b.Type, name: b.Labels[0], at: b.DefRange, block: b, body: b.Body})
		}
	}
	return diags
}

func (e *evaluator) run(given map[string]givenValue) (diags hcl.Diagnostics) {
	for _, key := range e.order {
		diags = append(diags, e.evaluate(key, given, nil)...)
	}
	return diags
}

func (e *evaluator) evaluate(key string, given map[string]givenValue, path []string) hcl.Diagnostics {
	n := e.nodes[key]
	switch n.state {
	case 2:
		return nil
	case 1:
		start := slices.Index(path, key)
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Circular reference",
			Detail: fmt.Sprintf("Each of these needs the next: %s.", strings.Join(append(path[start:], key), " → ")), Subject: n.at.Ptr()}}
	}
	n.state = 1
	defer func() { n.state = 2 }()
	var diags hcl.Diagnostics
	for _, t := range n.references() {
		diags = append(diags, e.resolve(t, key, given, append(path, key))...)
	}
	value := cty.DynamicVal
	if !diags.HasErrors() && !e.needsFailed(n) {
		var more hcl.Diagnostics
		switch {
		case n.variable != nil:
			value, more = e.variable(n, given)
		case n.expr != nil:
			value, more = n.expr.Value(e.scope())
		default:
			t, _ := block.Find(n.root)
			e.context.Eval, e.context.Secrets = e.scope(), nil
			value, more = t.Decode(e.context, n.block, e.c.Cluster)
			value = block.Remark(value, e.context.Secrets)
			e.c.Cluster.Secrets = append(e.c.Cluster.Secrets, e.context.Secrets...)
		}
		diags = append(diags, more...)
		n.failed = diags.HasErrors()
	} else {
		n.failed = true
	}
	if value == cty.NilVal {
		return diags
	}
	if _, ok := e.values[n.root]; ok {
		e.values[n.root][n.name] = value
	}
	return diags
}

// needsFailed reports whether something that a node refers to is wrong: what would be
// said of the node then is only that.
func (e *evaluator) needsFailed(n *node) bool {
	for _, t := range n.references() {
		if len(t) < 2 {
			continue
		}
		if step, ok := t[1].(hcl.TraverseAttr); ok {
			if other := e.nodes[t.RootName()+"."+step.Name]; other != nil && other != n && other.failed {
				return true
			}
		}
	}
	return false
}

// resolve evaluates what a reference is about, or says that there is no such thing.
func (e *evaluator) resolve(t hcl.Traversal, from string, given map[string]givenValue, path []string) hcl.Diagnostics {
	root := t.RootName()
	if !slices.Contains(roots, root) {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Unknown reference",
			Detail: fmt.Sprintf("Nothing is called %q.%s References start with one of %s.", root, block.Suggest(root, roots), strings.Join(roots, ", ")), Subject: t.SourceRange().Ptr()}}
	}
	if root == "path" || root == "each" || root == "count" {
		return nil
	}
	if len(t) < 2 {
		return e.evaluateAll(root, from, given, path)
	}
	step, ok := t[1].(hcl.TraverseAttr)
	if !ok {
		return e.evaluateAll(root, from, given, path)
	}
	key := root + "." + step.Name
	if _, ok := e.nodes[key]; ok {
		return e.evaluate(key, given, path)
	}
	var known []string
	for k := range e.nodes {
		if rest, ok := strings.CutPrefix(k, root+"."); ok {
			known = append(known, rest)
		}
	}
	sort.Strings(known)
	what := map[string]string{"var": "variable", "local": "local value"}[root]
	if what == "" {
		what = root
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Unknown reference",
		Detail: fmt.Sprintf("There is no %s %q.%s", what, step.Name, block.Suggest(step.Name, known)), Subject: t.SourceRange().Ptr()}}
}

func (e *evaluator) evaluateAll(root, from string, given map[string]givenValue, path []string) (diags hcl.Diagnostics) {
	for _, key := range e.order {
		if strings.HasPrefix(key, root+".") && key != from {
			diags = append(diags, e.evaluate(key, given, path)...)
		}
	}
	return diags
}

// references returns what a node needs.
func (n *node) references() []hcl.Traversal {
	switch {
	case n.variable != nil:
		return nil
	case n.expr != nil:
		return n.expr.Variables()
	}
	body, ok := n.body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	return bodyReferences(body)
}

func bodyReferences(body *hclsyntax.Body) []hcl.Traversal {
	var list []hcl.Traversal
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		list = append(list, body.Attributes[name].Expr.Variables()...)
	}
	for _, b := range body.Blocks {
		list = append(list, bodyReferences(b.Body)...)
	}
	return list
}

// scope returns what expressions see so far.
func (e *evaluator) scope() *hcl.EvalContext {
	s := &hcl.EvalContext{Functions: e.functions, Variables: map[string]cty.Value{
		"path": cty.ObjectVal(map[string]cty.Value{"module": cty.StringVal(e.dir), "root": cty.StringVal(e.dir), "cwd": cty.StringVal(".")}),
	}}
	for root, values := range e.values {
		s.Variables[root] = cty.ObjectVal(values)
	}
	return s
}
