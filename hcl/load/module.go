package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/block"
)

// maxDepth is the maximum depth of nested modules.
const maxDepth = 16

// moduleCall is a module block, which evaluates the declarations of a directory with its own values of the variables.
type moduleCall struct {
	block     *hcl.Block
	source    string
	at        *hcl.Range
	inputs    hcl.Attributes
	children  []*evaluator // one per instance
	instances []block.Instance
	state     int  // state of determining the instances: 0 waiting, 1 in progress, 2 done
	isUnknown bool // the number of instances is known only with the cluster
	value     cty.Value
	outputs   int // number of outputs that were known when value was computed
}

// callAttributes are the attributes of a module block that are not inputs.
var callAttributes = []string{"source", "for_each", "count", "depends_on"}

// decodeCall decodes the part of a module block that is known before evaluation.
func decodeCall(b *hcl.Block) (*moduleCall, hcl.Diagnostics) {
	c := &moduleCall{block: b, at: b.DefRange.Ptr(), inputs: hcl.Attributes{}}
	attributes, diags := b.Body.JustAttributes()
	for name, a := range attributes {
		if !slices.Contains(callAttributes, name) {
			c.inputs[name] = a
		}
	}
	source, ok := attributes["source"]
	if !ok {
		return c, append(diags, newError(c.at, "Module without a source", "Say where the module is: source = "+
			"\"./FOLDER\" or source = \"git::https://HOST/REPOSITORY//FOLDER?ref=TAG\"."))
	}
	c.at = source.Expr.Range().Ptr()
	v, more := source.Expr.Value(nil)
	if more.HasErrors() || v.IsNull() || v.Type() != cty.String {
		return c, append(diags, newError(c.at, "Invalid source",
			"A module's source is a text without references: it is fetched before anything is evaluated."))
	}
	c.source = v.AsString()
	return c, diags
}

func newError(at *hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: at}
}

// callReferences returns the references in for_each and count. References in inputs are resolved when the variable is
// needed, so that modules may use each other's outputs in both directions.
func callReferences(b *hcl.Block) (list []hcl.Traversal) {
	attributes, _ := b.Body.JustAttributes()
	for _, name := range []string{"for_each", "count"} {
		if a, ok := attributes[name]; ok {
			list = append(list, a.Expr.Variables()...)
		}
	}
	return list
}

// enterModule determines a module's instances and declares their content.
func (e *evaluator) enterModule(n *node, key string, path []string) (diags hcl.Diagnostics) {
	c := n.call
	switch c.state {
	case 2:
		return nil
	case 1:
		return e.cycleError(n, key, path)
	}
	c.state = 1
	defer func() { c.state, n.hasFailed = 2, n.hasFailed || diags.HasErrors() }()
	path = append(path, e.prefix+key)
	for _, t := range n.needs {
		diags = append(diags, e.resolve(t, key, path)...)
	}
	diags = append(diags, e.evaluateDependsOn(n, path)...)
	if n.hasFailed = diags.HasErrors() || e.hasFailedNeeds(n); n.hasFailed {
		return diags
	}
	if e.isUnknown(n.needs) {
		c.isUnknown = true
		e.configuration.Cluster.Deferred = append(e.configuration.Cluster.Deferred, e.prefix+key)
		return diags
	}
	dir, blocks, more := e.source(c)
	if diags = append(diags, more...); diags.HasErrors() {
		return diags
	}
	e.blockContext.Eval = e.scope(n.needs)
	instances, after, more := block.Instances(e.blockContext, n.block)
	if diags = append(diags, more...); diags.HasErrors() {
		return diags
	}
	for _, i := range instances {
		child := newEvaluator(e.configuration, dir, e.root().dir)
		child.parent, child.call, child.instance, child.depth, child.fetched = e, n, i, e.depth+1, e.fetched
		child.prefix = e.prefix + key + i.Suffix() + "."
		child.blockContext.Module, child.blockContext.ModuleNames = child.prefix, append(
			slices.Clone(e.blockContext.ModuleNames),
			n.name,
		)
		if i.IsRepeated() {
			child.blockContext.ModuleNames = append(child.blockContext.ModuleNames, i.Key)
		}
		child.blockContext.DependsOn = append(slices.Clone(e.blockContext.DependsOn), after...)
		more := child.declare(blocks)
		if diags = append(diags, more...); more.HasErrors() {
			return diags // the other instances have the same errors
		}
		c.children, c.instances = append(c.children, child), append(c.instances, i)
		if len(c.children) == 1 {
			if diags = append(diags, child.checkInputs(c)...); diags.HasErrors() {
				return diags
			}
		}
	}
	return diags
}

// checkInputs compares the inputs of a call with the variables of the module.
func (e *evaluator) checkInputs(c *moduleCall) (diags hcl.Diagnostics) {
	names := e.kinds["var"].names()
	for _, name := range slices.Sorted(maps.Keys(c.inputs)) {
		if e.nodes["var."+name] == nil {
			diags = append(diags, newError(c.inputs[name].NameRange.Ptr(), "Unknown input",
				"The module %s has no variable %q.%s", c.source, name, block.Suggest(name, names)))
		}
	}
	for _, name := range names {
		if v := e.nodes["var."+name]; v.variable.defaultAttribute == nil && c.inputs[name] == nil {
			diags = append(diags, newError(e.call.at.Ptr(), "Missing input",
				"The module %s needs a value for its variable %q (%s:%d): write %s = … in this block.", c.source, name,
				v.at.Filename, v.at.Start.Line, name))
		}
	}
	return diags
}

// evaluateInput evaluates, in the calling module, what a variable's input refers to.
func (e *evaluator) evaluateInput(n *node, path []string) (diags hcl.Diagnostics) {
	if a := e.call.call.inputs[n.name]; a != nil {
		for _, t := range a.Expr.Variables() {
			diags = append(diags, e.parent.resolve(t, e.call.root+"."+e.call.name, path)...)
			n.hasFailed = n.hasFailed || e.parent.hasFailedReference(t)
		}
	}
	return diags
}

// inputValue returns the value of an input.
func (e *evaluator) inputValue(a *hcl.Attribute) (cty.Value, hcl.Diagnostics) {
	return a.Expr.Value(e.instance.Eval(e.parent.scope(a.Expr.Variables())))
}

// evaluateOutputs evaluates the outputs of a module that a reference needs: one output, or all.
func (e *evaluator) evaluateOutputs(n *node, t hcl.Traversal, path []string) (diags hcl.Diagnostics) {
	children, name, at := n.call.instancesAndOutput(t)
	for i, child := range children {
		if name == "" {
			diags = append(diags, child.evaluateAll("output", "", path)...)
			continue
		}
		if child.nodes["output."+name] == nil {
			if i == 0 {
				diags = append(diags, newError(at, "Unknown reference", "The module %s has no output %q.%s",
					n.call.source, name, block.Suggest(name, child.kinds["output"].names())))
			}
			continue
		}
		diags = append(diags, child.evaluate("output."+name, path)...)
	}
	return diags
}

// instancesAndOutput returns the instances and the output that a reference such as module.x["a"].y names. The name is
// empty if the reference may mean any output.
func (c *moduleCall) instancesAndOutput(t hcl.Traversal) (children []*evaluator, name string, at *hcl.Range) {
	children = c.children
	rest := t[min(2, len(t)):]
	if len(c.instances) > 0 && !c.instances[0].IsRepeated() {
		if len(rest) > 0 {
			if step, ok := rest[0].(hcl.TraverseAttr); ok {
				name = step.Name
			}
		}
		return children, name, t.SourceRange().Ptr()
	}
	if len(rest) < 2 {
		return children, "", nil
	}
	index, ok := rest[0].(hcl.TraverseIndex)
	step, named := rest[1].(hcl.TraverseAttr)
	if !ok || !named {
		return children, "", nil
	}
	for i, instance := range c.instances {
		if instance.HasKey(index.Key) {
			return c.children[i : i+1], step.Name, t.SourceRange().Ptr()
		}
	}
	return nil, "", nil // the evaluation reports the missing key
}

// moduleValue returns the module's value in expressions: the outputs that have been evaluated.
func (c *moduleCall) moduleValue() cty.Value {
	if c.isUnknown {
		return cty.DynamicVal
	}
	count := 0
	for _, child := range c.children {
		count += len(child.kinds["output"].values)
	}
	if c.value != cty.NilVal && c.outputs == count {
		return c.value
	}
	values := make([]cty.Value, 0, len(c.children))
	for _, child := range c.children {
		values = append(values, child.kinds["output"].wholeObject())
	}
	c.value, c.outputs = block.CombineInstances(c.block, c.instances, values), count
	return c.value
}

// root returns the evaluator of the root module.
func (e *evaluator) root() *evaluator {
	for e.parent != nil {
		e = e.parent
	}
	return e
}

// enclosingDirs returns the directories of the enclosing modules, root first.
func (e *evaluator) enclosingDirs() (list []string) {
	for ; e != nil; e = e.parent {
		list = append([]string{e.dir}, list...)
	}
	return list
}

// source returns a module's directory and its blocks.
func (e *evaluator) source(c *moduleCall) (string, hcl.Blocks, hcl.Diagnostics) {
	dir, err := e.fetched.folder(e.dir, c.source)
	if err != nil {
		return "", nil, hcl.Diagnostics{newError(c.at, "Module that cannot be used", "%s", toSentence(err.Error()))}
	}
	if e.depth >= maxDepth || slices.Contains(e.enclosingDirs(), dir) {
		return "", nil, hcl.Diagnostics{
			newError(c.at, "Module inside itself", "The folder %s is a module that contains itself: %s.", dir,
				strings.Join(append(e.enclosingDirs(), dir), " → ")),
		}
	}
	paths, _, err := configurationFiles(dir)
	if err != nil {
		return "", nil, hcl.Diagnostics{newError(c.at, "Module that cannot be used", "%s", toSentence(err.Error()))}
	}
	blocks, diags := e.configuration.parseFiles(paths)
	for _, b := range blocks {
		if b.Type == "cluster" {
			diags = append(diags, newError(b.DefRange.Ptr(), "Cluster in a module",
				"The cluster block stands at the top: a module has machines, workloads and objects for it. Give the "+
					"module what it must know of the cluster as inputs."))
		}
	}
	return dir, blocks, diags
}

func toSentence(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}
