package load

import (
	"fmt"
	"regexp"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// Limits on what a short expression may create.
const (
	maxProduct = 1 << 20 // number of combinations
	maxIndent  = 1000    // number of spaces
)

var (
	setProductFunc = boundedFunc(stdlib.SetProductFunc, func(args []cty.Value) error {
		product := 1
		for _, a := range args {
			a, _ := a.Unmark()
			if !a.IsKnown() || a.IsNull() || !a.CanIterateElements() {
				return nil
			}
			if product *= a.LengthInt(); product > maxProduct {
				return fmt.Errorf("there would be more than %d combinations", maxProduct)
			}
		}
		return nil
	})
	indentFunc = boundedFunc(stdlib.IndentFunc, func(args []cty.Value) error {
		if n, _ := args[0].Unmark(); n.IsKnown() && !n.IsNull() && n.GreaterThan(cty.NumberIntVal(maxIndent)).True() {
			return function.NewArgErrorf(0, "%d spaces are the most", maxIndent)
		}
		return nil
	})
)

// wideVerb matches a format verb whose width or precision has more than four digits.
var wideVerb = regexp.MustCompile(`%[-+ #0-9.\[\]]*[0-9]{5}`)

// boundedFormat returns f with an error for formats whose verbs are wider than 9999 characters.
func boundedFormat(f function.Function) function.Function {
	return boundedFunc(f, func(args []cty.Value) error {
		text, _ := args[0].Unmark()
		if text.Type() == cty.String && text.IsKnown() && !text.IsNull() && wideVerb.MatchString(text.AsString()) {
			return function.NewArgErrorf(0, "a width or a precision is 9999 at most")
		}
		return nil
	})
}

// boundedFunc returns f with a check that refuses arguments whose result would be too large.
func boundedFunc(f function.Function, check func(args []cty.Value) error) function.Function {
	return function.New(&function.Spec{
		Params: f.Params(), VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := check(args); err != nil {
				return cty.DynamicPseudoType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}
