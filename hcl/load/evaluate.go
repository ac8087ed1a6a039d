package load

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"clusterctl/hcl/block"
	"clusterctl/hcl/config"
)

// evaluator evaluates the declarations of a module, or of the root, in the order of their references.
type evaluator struct {
	configuration *Configuration
	dir           string
	place         place
	fetched       *fetchedModules
	parent        *evaluator // evaluator of the calling module; nil at the root
	call          *node
	instance      block.Instance
	prefix        string // prefix of addresses, such as module.x["a"].
	depth         int
	blockContext  *block.Context
	functions     map[string]function.Function
	paths         cty.Value // the values of path.module, path.root and path.cwd
	nodes         map[string]*node
	order         []string
	kinds         map[string]*declarationKind
	givenValues   map[string]givenValue
	addresses     map[string][]string // keys of nodes by address of their block; built on first use
}

// node is a declaration that can be evaluated, such as var.x, local.x or machine.x.
type node struct {
	root, name string
	at         hcl.Range
	body       hcl.Body       // the block's body
	block      *hcl.Block     // the block
	expr       hcl.Expression // the expression of a local value
	variable   *variable
	call       *moduleCall
	needs      []hcl.Traversal // references in its expressions
	state      int             // 0 waiting, 1 in progress, 2 done
	hasFailed  bool            // it, or something that it refers to, has an error that was reported
}

func newEvaluator(c *Configuration, dir, root string) *evaluator {
	e := &evaluator{configuration: c, dir: dir, nodes: map[string]*node{}, kinds: map[string]*declarationKind{}}
	for _, r := range append([]string{"output"}, referenceRoots...) {
		e.kinds[r] = &declarationKind{values: map[string]cty.Value{}}
	}
	e.place = place{dir: dir, root: c.root}
	e.paths = pathValues(e.place, root)
	e.functions = functionsIn(e.place, c.now)
	e.blockContext = &block.Context{Digest: fileDigest, Path: e.place.path, Glob: globIn(e.place, root), YAML: readYAML}
	return e
}

// pathValues returns the values of path.module, path.root and path.cwd. They are absolute, because functions resolve
// relative paths against their module.
func pathValues(in place, root string) cty.Value {
	values := map[string]cty.Value{}
	for name, path := range map[string]string{"module": in.dir, "root": root, "cwd": "."} {
		if in.root != "" {
			values[name] = cty.StringVal(in.shown(path))
			continue
		}
		if absolute, err := filepath.Abs(path); err == nil {
			path = absolute
		}
		values[name] = cty.StringVal(path)
	}
	return cty.ObjectVal(values)
}

// declare adds all blocks and reports duplicates.
func (e *evaluator) declare(blocks hcl.Blocks) (diags hcl.Diagnostics) {
	add := func(key string, n *node) {
		if other, ok := e.nodes[key]; ok {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Duplicate declaration",
				Detail: fmt.Sprintf("%s is already declared at %s:%d. Give one of them another name.", key,
					other.at.Filename, other.at.Start.Line), Subject: n.at.Ptr()})
			return
		}
		n.needs = n.references()
		e.nodes[key] = n
		e.order = append(e.order, key)
		if k := e.kinds[n.root]; k != nil {
			k.keys = append(k.keys, key)
		}
	}
	for _, b := range blocks {
		if e.configuration.root != "" && !slices.Contains(workloadBlocks, b.Type) {
			diags = append(diags, newError(b.DefRange.Ptr(), "Block of a cluster",
				"A folder of a Git repository that the cluster follows declares objects only. Write %s blocks into "+
					"the cluster's own configuration, which clusterctl apply reads.", b.Type))
			continue
		}
		for i, l := range b.Labels {
			if (b.Type != "object") && !hclsyntax.ValidIdentifier(l) {
				diags = append(
					diags,
					&hcl.Diagnostic{
						Severity: hcl.DiagError,
						Summary:  "Invalid name",
						Detail:   "A name starts with a letter and has letters, digits, dashes and underscores only.",
						Subject:  b.LabelRanges[i].Ptr(),
					},
				)
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
		case "module":
			call, more := decodeCall(b)
			diags = append(diags, more...)
			add("module."+b.Labels[0],
				&node{root: "module", name: b.Labels[0], at: b.DefRange, block: b, body: b.Body, call: call})
		default:
			e.configuration.headers[config.Source{File: b.DefRange.Filename,
				Line: b.DefRange.Start.Line}] = b.DefRange.Ptr()
			if t, ok := block.FindAddressType(b.Type); ok {
				diags = append(diags, e.decodeAddressBlock(t, b)...)
				continue
			}
			key := b.Type + "." + strings.Join(b.Labels, ".")
			if b.Type == "object" { // the namespace is part of its identity; package block detects duplicates
				key = fmt.Sprintf("%s@%s:%d", key, b.DefRange.Filename, b.DefRange.Start.Line)
			}
			name := b.Labels[0]
			if b.Type == "data" {
				name = strings.Join(b.Labels, ".")
			}
			add(key, &node{root: b.Type, name: name, at: b.DefRange, block: b, body: b.Body})
		}
	}
	return diags
}

// decodeAddressBlock decodes a block of type moved, removed or import. In a module, its addresses are relative to the
// module.
func (e *evaluator) decodeAddressBlock(t block.Type, b *hcl.Block) hcl.Diagnostics {
	c := e.configuration.Cluster
	moved, removed, imports := len(c.Moved), len(c.Removed), len(c.Imports)
	_, diags := t.Decode(e.blockContext, b, c)
	for i := range c.Moved[moved:] {
		c.Moved[moved+i].From, c.Moved[moved+i].To = e.prefix+c.Moved[moved+i].From, e.prefix+c.Moved[moved+i].To
	}
	for i := range c.Removed[removed:] {
		c.Removed[removed+i].From = e.prefix + c.Removed[removed+i].From
	}
	for i := range c.Imports[imports:] {
		c.Imports[imports+i].To = e.prefix + c.Imports[imports+i].To
	}
	return diags
}

func (e *evaluator) evaluateModule() (diags hcl.Diagnostics) {
	for _, key := range e.order {
		diags = append(diags, e.evaluate(key, nil)...)
	}
	return diags
}

// evaluate evaluates a node after everything that it refers to. path is the chain of references down to this node.
func (e *evaluator) evaluate(key string, path []string) hcl.Diagnostics {
	n := e.nodes[key]
	switch n.state {
	case 2:
		return nil
	case 1:
		return e.cycleError(n, key, path)
	}
	n.state = 1
	defer func() { n.state = 2 }()
	if n.call != nil {
		diags := e.enterModule(n, key, path)
		for _, child := range n.call.children {
			if !n.hasFailed {
				diags = append(diags, child.evaluateModule()...)
			}
		}
		return diags
	}
	var diags hcl.Diagnostics
	path = append(path, e.prefix+key)
	for _, t := range n.needs {
		diags = append(diags, e.resolve(t, key, path)...)
	}
	if n.body != nil {
		diags = append(diags, e.evaluateDependsOn(n, path)...)
	}
	if n.variable != nil && e.parent != nil {
		diags = append(diags, e.evaluateInput(n, path)...)
	}
	value := cty.DynamicVal
	if !diags.HasErrors() && !n.hasFailed && !e.hasFailedNeeds(n) {
		var more hcl.Diagnostics
		value, more = e.nodeValue(n)
		e.explainIndexes(n, more)
		for _, d := range more {
			for _, start := range []string{"Precondition failed", "Postcondition failed", "Check failed",
				"Invalid value for variable"} {
				if strings.HasPrefix(d.Summary, start) {
					d.Extra = FailedCondition(e.prefix + nodeAddress(key))
				}
			}
		}
		diags = append(diags, more...)
		n.hasFailed = diags.HasErrors()
	} else {
		n.hasFailed = true
	}
	if k := e.kinds[n.root]; k != nil && value != cty.NilVal {
		k.set(n.name, value)
	}
	return diags
}

// key returns the address of a node's block within its module.
func (n *node) key() string { return n.root + "." + strings.Join(n.block.Labels, ".") }

// cycleError returns the error of a circular reference.
func (e *evaluator) cycleError(n *node, key string, path []string) hcl.Diagnostics {
	full := e.prefix + key
	start := slices.Index(path, full)
	if start < 0 || start == len(path)-1 {
		return hcl.Diagnostics{
			newError(n.at.Ptr(), "Reference to itself", "%s is being worked out here and cannot be used for that. Put "+
				"what it shares with itself into a local value.", nodeAddress(full)),
		}
	}
	var circle []string
	for _, k := range append(path[start:], full) {
		circle = append(circle, nodeAddress(k))
	}
	return hcl.Diagnostics{
		newError(n.at.Ptr(), "Circular reference", "Each of these needs the next: %s.", strings.Join(circle, " → ")),
	}
}

// nodeValue evaluates a node whose references have been evaluated.
func (e *evaluator) nodeValue(n *node) (cty.Value, hcl.Diagnostics) {
	switch {
	case n.variable != nil:
		return e.variableValue(n)
	case n.expr != nil:
		return n.expr.Value(e.scope(n.needs))
	}
	if n.root == "data" {
		if e.isUnknown(n.needs) {
			return cty.DynamicVal, nil
		}
		if v, ok := e.configuration.overrides[e.prefix+n.key()]; ok {
			return v, nil
		}
		return e.dataValue(n)
	}
	if e.isUnknown(n.needs) { // it will be known when a plan is made
		if e.prefix == "" || n.root != "output" {
			e.configuration.Cluster.Deferred = append(e.configuration.Cluster.Deferred, e.prefix+nodeAddress(n.key()))
		}
		return cty.DynamicVal, nil
	}
	e.blockContext.Eval, e.blockContext.Secrets = e.scope(n.needs), nil
	value, diags := block.Decode(e.blockContext, n.block, e.configuration.Cluster)
	value = block.MarkSecrets(value, e.blockContext.Secrets)
	e.configuration.Cluster.Secrets = append(e.configuration.Cluster.Secrets, e.blockContext.Secrets...)
	return value, diags
}

// hasFailedNeeds reports whether something that a node refers to has an error. Errors of the node itself would only be
// consequences of that error.
func (e *evaluator) hasFailedNeeds(n *node) bool {
	return slices.ContainsFunc(n.needs, func(t hcl.Traversal) bool {
		name, ok := secondName(t)
		return !(ok && e.nodes[t.RootName()+"."+name] == n) && e.hasFailedReference(t)
	})
}

func (e *evaluator) hasFailedReference(t hcl.Traversal) bool {
	name, ok := secondName(t)
	if !ok {
		return false
	}
	n := e.nodes[t.RootName()+"."+name]
	if n == nil || n.call == nil {
		return n != nil && n.hasFailed
	}
	if n.hasFailed {
		return true
	}
	children, output, _ := n.call.instancesAndOutput(t)
	return slices.ContainsFunc(children, func(child *evaluator) bool {
		o := child.nodes["output."+output]
		return o != nil && o.hasFailed
	})
}
