package load

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// ParseExpression parses an expression in which a division by zero is an error. name appears in diagnostics as the
// file name.
func ParseExpression(text, name string) (hcl.Expression, hcl.Diagnostics) {
	expr, diags := hclsyntax.ParseExpression([]byte(text), name, hcl.InitialPos)
	if !diags.HasErrors() {
		refuseZeroDivisors(expr)
	}
	return expr, diags
}

// refuseZeroDivisors changes the divisions in a parsed file or expression so that they fail when the divisor is zero.
// The HCL library returns infinity, or the dividend as the remainder, so that the error appears later at another line.
func refuseZeroDivisors(parsed hclsyntax.Node) {
	_ = hclsyntax.VisitAll(parsed, func(node hclsyntax.Node) hcl.Diagnostics {
		e, ok := node.(*hclsyntax.BinaryOpExpr)
		if !ok || e.Op != hclsyntax.OpDivide && e.Op != hclsyntax.OpModulo {
			return nil
		}
		checked := *e.Op
		checked.ShortCircuit = func(_, divisor cty.Value, _, _ hcl.Diagnostics) (cty.Value, hcl.Diagnostics) {
			if divisor.Type() != cty.Number || !divisor.IsKnown() || divisor.IsNull() ||
				divisor.AsBigFloat().Sign() != 0 {
				return cty.NilVal, nil
			}
			return cty.UnknownVal(cty.Number), hcl.Diagnostics{newError(e.SrcRange.Ptr(), "Division by zero",
				"The divisor is zero here. Where it may be, choose another value for that case, "+
					"as in b == 0 ? 0 : a / b.")}
		}
		e.Op = &checked
		return nil
	})
}
