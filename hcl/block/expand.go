package block

import (
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"clusterctl/hcl/config"
)

// repetition is the way in which a block was repeated.
type repetition int

const (
	notRepeated repetition = iota
	byForEach
	byCount
)

// Instance is one instance of a block with for_each or count, or the only one of a block without.
type Instance struct {
	kind  repetition
	Key   string // key of for_each, or index of count
	value cty.Value
}

// IsRepeated reports whether the block has for_each or count.
func (i Instance) IsRepeated() bool { return i.kind != notRepeated }

// HasKey reports whether this is the instance with an index key.
func (i Instance) HasKey(key cty.Value) bool {
	text, err := convert.Convert(key, cty.String)
	return err == nil && i.kind != notRepeated && text.AsString() == i.Key
}

// Suffix returns the part of an instance's address after the block's address.
func (i Instance) Suffix() string {
	switch i.kind {
	case byForEach:
		return fmt.Sprintf("[%q]", i.Key)
	case byCount:
		return "[" + i.Key + "]"
	}
	return ""
}

// Eval returns a context that defines each or count for the instance.
func (i Instance) Eval(parent *hcl.EvalContext) *hcl.EvalContext {
	if i.kind == notRepeated {
		return parent
	}
	child := parent.NewChild()
	switch i.kind {
	case byForEach:
		child.Variables = map[string]cty.Value{
			"each": cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(i.Key), "value": i.value}),
		}
	case byCount:
		child.Variables = map[string]cty.Value{"count": cty.ObjectVal(map[string]cty.Value{"index": i.value})}
	}
	return child
}

// MaxInstances limits the number of instances, so that a typing error does not create a million machines.
const MaxInstances = 10000

// Decode decodes a block once, or for each instance of for_each or count. It returns the block's value in expressions,
// which contains the values of all instances.
func Decode(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	t, _ := Find(b.Type)
	before, afterwards, body, diags := conditions(b)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	one := *b
	one.Body = body
	guarded := func() (cty.Value, hcl.Diagnostics) {
		if diags := checkRules(before, x.Eval, hcl.DiagError, "Precondition failed"); diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		v, diags := t.Decode(x, &one, c)
		if len(afterwards) > 0 && !diags.HasErrors() {
			diags = append(diags, checkRules(afterwards, withSelf(x.Eval, v), hcl.DiagError, "Postcondition failed")...)
		}
		return v, diags
	}
	if !slices.Contains(repeatableTypes, t.Name) {
		return guarded()
	}
	outer := x.Eval
	defer func() { x.Eval, x.instance, x.dependsOn = outer, Instance{}, nil }()
	instances, rest, diags := expandInstances(x, &one)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	after, rest, more := dependsOn(x, b, rest)
	if diags = append(diags, more...); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	one.Body = rest
	values := make([]cty.Value, 0, len(instances))
	for _, i := range instances {
		x.Eval, x.instance, x.dependsOn = i.Eval(outer), i, append(slices.Clone(x.DependsOn), after...)
		v, more := guarded()
		diags = append(diags, more...)
		if more.HasErrors() {
			return cty.DynamicVal, diags
		}
		values = append(values, v)
	}
	return CombineInstances(b, instances, values), diags
}

// repeatableTypes are the block types that support for_each, count and depends_on.
var repeatableTypes = []string{"machine", "image", "workload", "object", "storage_class", "load_balancer", "git_source",
	"helm_release", "kustomization", "manifests"}

// CombineInstances combines the values of all instances of a block: a tuple for count, an object for for_each, and the
// value itself for a block without either.
func CombineInstances(b *hcl.Block, instances []Instance, values []cty.Value) cty.Value {
	if len(instances) == 1 && instances[0].kind == notRepeated {
		return values[0]
	}
	if slices.Contains(values, cty.NilVal) {
		return cty.NilVal
	}
	if HasAttribute(b.Body, "count") {
		return cty.TupleVal(values)
	}
	byKey := map[string]cty.Value{}
	for n, i := range instances {
		byKey[i.Key] = values[n]
	}
	return cty.ObjectVal(byKey)
}

// HasAttribute reports whether a body has the attribute by, which is "for_each" or "count".
func HasAttribute(body hcl.Body, by string) bool {
	if native, ok := nativeBody(body); ok {
		return native.Attributes[by] != nil
	}
	content, _, _ := body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: by}}})
	return content.Attributes[by] != nil
}

// expandInstances evaluates for_each and count of a block. It returns the instances and the rest of the body.
func expandInstances(x *Context, b *hcl.Block) ([]Instance, hcl.Body, hcl.Diagnostics) {
	if native, ok := b.Body.(*hclsyntax.Body); ok && native.Attributes["for_each"] == nil &&
		native.Attributes["count"] == nil {
		return []Instance{{kind: notRepeated}}, b.Body, nil
	}
	content, rest, diags := b.Body.PartialContent(
		&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "for_each"}, {Name: "count"}}},
	)
	if diags.HasErrors() {
		return nil, rest, diags
	}
	each, hasEach := content.Attributes["for_each"]
	count, hasCount := content.Attributes["count"]
	switch {
	case hasEach && hasCount:
		return nil, rest, append(diags, newError(count.Range.Ptr(), "Both for_each and count",
			"A block is repeated by one of them: remove the other."))
	case hasCount:
		list, more := countInstances(x.Eval, count)
		return list, rest, append(diags, more...)
	case hasEach:
		v, more := each.Expr.Value(x.Eval)
		diags = append(diags, more...)
		if more.HasErrors() {
			return nil, rest, diags
		}
		if v.IsMarked() {
			return nil, rest, append(diags, sensitiveRepeatError("for_each", each))
		}
		list, problem := forEachInstances(v)
		if problem != "" {
			return nil, rest, append(
				diags,
				&hcl.Diagnostic{
					Severity:    hcl.DiagError,
					Summary:     "Invalid for_each",
					Detail:      problem,
					Subject:     each.Expr.Range().Ptr(),
					Expression:  each.Expr,
					EvalContext: x.Eval,
				},
			)
		}
		return list, rest, diags
	}
	return []Instance{{kind: notRepeated}}, rest, diags
}

func countInstances(eval *hcl.EvalContext, count *hcl.Attribute) ([]Instance, hcl.Diagnostics) {
	v, diags := count.Expr.Value(eval)
	if diags.HasErrors() {
		return nil, diags
	}
	if v.ContainsMarked() {
		return nil, append(diags, sensitiveRepeatError("count", count))
	}
	v, err := convert.Convert(v, cty.Number)
	if err != nil || v.IsNull() || !v.IsKnown() {
		return nil, append(diags, newError(count.Expr.Range().Ptr(), "Invalid count", "count must be a whole number."))
	}
	n, _ := v.AsBigFloat().Int64()
	if !v.AsBigFloat().IsInt() || n < 0 || n > MaxInstances {
		return nil, append(diags, newError(count.Expr.Range().Ptr(), "Invalid count",
			"count must be a whole number from 0 to %d.", MaxInstances))
	}
	list := []Instance{}
	for i := range n {
		list = append(list, Instance{byCount, strconv.FormatInt(i, 10), cty.NumberIntVal(i)})
	}
	return list, diags
}

// Instances evaluates for_each, count and depends_on of a module block.
func Instances(x *Context, b *hcl.Block) ([]Instance, []string, hcl.Diagnostics) {
	instances, rest, diags := expandInstances(x, b)
	after, _, more := dependsOn(x, b, rest)
	return instances, after, append(diags, more...)
}

// sensitiveRepeatError returns an error for a sensitive value, because instance keys and their number are shown.
func sensitiveRepeatError(what string, a *hcl.Attribute) *hcl.Diagnostic {
	return newError(a.Expr.Range().Ptr(), "Sensitive value in "+what,
		"%s says what things are called and how many there are, and that is shown. Take it from something that is "+
			"not sensitive; nonsensitive(…) says that a value may be shown.", what)
}

func forEachInstances(v cty.Value) ([]Instance, string) {
	ty := v.Type()
	switch {
	case v.IsNull():
		return nil, "for_each must not be null."
	case !v.IsWhollyKnown():
		return nil, "for_each must be known before anything is made."
	case ty.IsSetType() && v.LengthInt() == 0: // toset([]) has no element type
		return nil, ""
	case !(ty.IsMapType() || ty.IsObjectType() || ty.IsSetType() && ty.ElementType() == cty.String):
		return nil, fmt.Sprintf("for_each takes a map or a set of strings, not %s. A list becomes a set with toset(…).",
			ty.FriendlyName())
	case v.LengthInt() > MaxInstances:
		return nil, fmt.Sprintf("for_each has %d elements; %d are the most.", v.LengthInt(), MaxInstances)
	}
	var list []Instance
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		if ty.IsSetType() {
			k = e
		}
		if k.IsNull() {
			return nil, "for_each must not contain null."
		}
		list = append(list, Instance{byForEach, k.AsString(), e})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list, ""
}
