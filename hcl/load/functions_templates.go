package load

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/customdecode"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"

	"clusterctl/hcl/block"
)

// templates are the functions that render templates. They are not available in templates, so that no template can
// contain itself.
var templates = []string{"templatefile", "templatestring"}

// templateFileFunc renders a file with the given variables and all functions except those in templates.
func templateFileFunc(f map[string]function.Function, read func(string) ([]byte, error)) function.Function {
	render := func(a []cty.Value) (cty.Value, error) {
		path := a[0].AsString()
		content, err := read(path)
		if err != nil {
			return cty.DynamicVal, function.NewArgError(0, err)
		}
		return renderTemplate(f, string(content), path, a[1])
	}
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}, {Name: "vars", Type: cty.DynamicPseudoType}},
		Type: func(a []cty.Value) (cty.Type, error) {
			if !a[0].IsKnown() || !a[1].IsWhollyKnown() {
				return cty.DynamicPseudoType, nil
			}
			v, err := render(a)
			return v.Type(), err
		},
		Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) { return render(a) },
	})
}

// templateStringFunc renders a template that a reference names. The argument must be a reference, because a template
// that is written as an argument is already rendered when the function is called.
func templateStringFunc(f map[string]function.Function) function.Function {
	render := func(a []cty.Value) (cty.Value, error) {
		closure := customdecode.ExpressionClosureFromVal(a[0])
		if _, diags := hcl.AbsTraversalForExpr(closure.Expression); diags.HasErrors() {
			return cty.DynamicVal, function.NewArgErrorf(0, "must be a reference to a text, as local.template")
		}
		text, diags := closure.Value()
		if diags.HasErrors() {
			return cty.DynamicVal, function.NewArgErrorf(0, "%v", diags)
		}
		text, marks := text.Unmark()
		text, err := convert.Convert(text, cty.String)
		switch {
		case err != nil:
			return cty.DynamicVal, function.NewArgError(0, err)
		case !text.IsKnown():
			return cty.DynamicVal, nil
		case text.IsNull():
			return cty.DynamicVal, function.NewArgErrorf(0, "must not be null")
		}
		v, err := renderTemplate(f, text.AsString(), "the template", a[1])
		return v.WithMarks(marks), err
	}
	return function.New(&function.Spec{
		Params: []function.Parameter{
			{Name: "ref", Type: customdecode.ExpressionClosureType},
			{Name: "vars", Type: cty.DynamicPseudoType},
		},
		Type: func(a []cty.Value) (cty.Type, error) {
			if !a[1].IsWhollyKnown() {
				return cty.DynamicPseudoType, nil
			}
			v, err := render(a)
			return v.Type(), err
		},
		Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) { return render(a) },
	})
}

// renderTemplate returns the value of a template. It is text, or a value of any type if the template consists of one
// interpolation.
func renderTemplate(f map[string]function.Function, content, name string, given cty.Value) (cty.Value, error) {
	expr, diags := hclsyntax.ParseTemplate([]byte(content), name, hcl.InitialPos)
	if diags.HasErrors() {
		return cty.DynamicVal, function.NewArgErrorf(0, "%v", diags)
	}
	refuseZeroDivisors(expr)
	if ty := given.Type(); !ty.IsObjectType() && !ty.IsMapType() {
		return cty.DynamicVal, function.NewArgErrorf(1, "must be a map or an object")
	}
	vars := map[string]cty.Value{}
	for it := given.ElementIterator(); it.Next(); {
		k, v := it.Element()
		if !hclsyntax.ValidIdentifier(k.AsString()) {
			return cty.DynamicVal, function.NewArgErrorf(1, "%q is not the name of a variable: a name starts with a "+
				"letter and has letters, digits, dashes and underscores", k.AsString())
		}
		vars[k.AsString()] = v
	}
	for _, t := range expr.Variables() {
		if _, ok := vars[t.RootName()]; !ok {
			return cty.DynamicVal, function.NewArgErrorf(1, "has no key %q, which %s refers to in line %d.%s",
				t.RootName(), name, t.SourceRange().Start.Line, block.Suggest(t.RootName(), sortedKeys(vars)))
		}
	}
	inner := map[string]function.Function{}
	for fn, one := range f {
		if !slices.Contains(templates, fn) {
			inner[fn] = one
			continue
		}
		inner[fn] = function.New(&function.Spec{
			VarParam: &function.Parameter{
				Name:             "any",
				Type:             cty.DynamicPseudoType,
				AllowNull:        true,
				AllowUnknown:     true,
				AllowDynamicType: true,
				AllowMarked:      true,
			},
			Type: func([]cty.Value) (cty.Type, error) {
				return cty.NilType, fmt.Errorf("a template cannot render another: %s is not there in %s", fn, name)
			},
			Impl: func([]cty.Value, cty.Type) (cty.Value, error) { return cty.NilVal, errors.ErrUnsupported },
		})
	}
	v, diags := expr.Value(&hcl.EvalContext{Variables: vars, Functions: inner})
	if diags.HasErrors() {
		return cty.DynamicVal, function.NewArgErrorf(1, "%v", diags)
	}
	return v, nil
}
