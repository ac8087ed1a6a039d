package block

import (
	"fmt"
	"sort"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// How a block came to be several.
type expansion int

const (
	once expansion = iota
	forEach
	counted
)

// instance is one of the things that a block with for_each or count declares.
type instance struct {
	kind  expansion
	key   string
	value cty.Value
}

func (i instance) suffix() string {
	switch i.kind {
	case forEach:
		return fmt.Sprintf("[%q]", i.key)
	case counted:
		return "[" + i.key + "]"
	}
	return ""
}

// eval returns a context in which each or count is known.
func (i instance) eval(parent *hcl.EvalContext) *hcl.EvalContext {
	child := parent.NewChild()
	switch i.kind {
	case forEach:
		child.Variables = map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(i.key), "value": i.value})}
	case counted:
		child.Variables = map[string]cty.Value{"count": cty.ObjectVal(map[string]cty.Value{"index": i.value})}
	}
	return child
}

// MaxInstances keeps a slip of the pen from making a million machines.
const MaxInstances = 10000

// expand reads for_each and count of a block and returns the instances and the
// rest of the body.
func expand(x *Context, b *hcl.Block) ([]instance, hcl.Body, hcl.Diagnostics) {
	content, rest, diags := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "for_each"}, {Name: "count"}}})
	if diags.HasErrors() {
		return nil, rest, diags
	}
	each, hasEach := content.Attributes["for_each"]
	count, hasCount := content.Attributes["count"]
	switch {
	case hasEach && hasCount:
		return nil, rest, append(diags, fail(count.Range.Ptr(), "Both for_each and count", "A block is repeated by one of them: remove the other."))
	case hasCount:
		v, more := count.Expr.Value(x.Eval)
		diags = append(diags, more...)
		if more.HasErrors() {
			return nil, rest, diags
		}
		if v.ContainsMarked() {
			return nil, rest, append(diags, secretRepeat("count", count))
		}
		v, err := convert.Convert(v, cty.Number)
		if err != nil || v.IsNull() || !v.IsKnown() {
			return nil, rest, append(diags, fail(count.Expr.Range().Ptr(), "Invalid count", "count must be a whole number."))
		}
		n, _ := v.AsBigFloat().Int64()
		if !v.AsBigFloat().IsInt() || n < 0 || n > MaxInstances {
			return nil, rest, append(diags, fail(count.Expr.Range().Ptr(), "Invalid count", "count must be a whole number from 0 to %d.", MaxInstances))
		}
		list := []instance{}
		for i := range n {
			list = append(list, instance{counted, strconv.FormatInt(i, 10), cty.NumberIntVal(i)})
		}
		return list, rest, diags
	case hasEach:
		v, more := each.Expr.Value(x.Eval)
		diags = append(diags, more...)
		if more.HasErrors() {
			return nil, rest, diags
		}
		if v.IsMarked() {
			return nil, rest, append(diags, secretRepeat("for_each", each))
		}
		list, problem := eachOf(v)
		if problem != "" {
			return nil, rest, append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid for_each", Detail: problem, Subject: each.Expr.Range().Ptr(), Expression: each.Expr, EvalContext: x.Eval})
		}
		return list, rest, diags
	}
	return []instance{{kind: once}}, rest, diags
}

// secretRepeat refuses a sensitive value: keys and their number are names, which are shown.
func secretRepeat(what string, a *hcl.Attribute) *hcl.Diagnostic {
	return fail(a.Expr.Range().Ptr(), "Sensitive value in "+what,
		"%s says what things are called and how many there are, and that is shown. Take it from something that is not sensitive; nonsensitive(…) says that a value may be shown.", what)
}

func eachOf(v cty.Value) ([]instance, string) {
	ty := v.Type()
	switch {
	case v.IsNull():
		return nil, "for_each must not be null."
	case !v.IsWhollyKnown():
		return nil, "for_each must be known before anything is made."
	case !(ty.IsMapType() || ty.IsObjectType() || ty.IsSetType() && ty.ElementType() == cty.String):
		return nil, fmt.Sprintf("for_each takes a map or a set of strings, not %s. A list becomes a set with toset(…).", ty.FriendlyName())
	case v.LengthInt() > MaxInstances:
		return nil, fmt.Sprintf("for_each has %d elements; %d are the most.", v.LengthInt(), MaxInstances)
	}
	var list []instance
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		if ty.IsSetType() {
			k = e
		}
		if k.IsNull() {
			return nil, "for_each must not contain null."
		}
		list = append(list, instance{forEach, k.AsString(), e})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].key < list[j].key })
	return list, ""
}
