package load

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// ParseExpression parses an expression, as a person types it.
func ParseExpression(text, name string) (hcl.Expression, hcl.Diagnostics) {
	expr, diags := hclsyntax.ParseExpression([]byte(text), name, hcl.InitialPos)
	if !diags.HasErrors() {
		refuseZeroDivisors(expr)
	}
	return expr, diags
}

// refuseZeroDivisors makes the divisions in a file or an expression fail when the divisor is zero. By themselves they
// give infinity, or the dividend as remainder, which nobody asked for and which fails later, at another line.
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
			return cty.UnknownVal(cty.Number), hcl.Diagnostics{problem(e.SrcRange.Ptr(), "Division by zero",
				"The divisor is zero here. Where it may be, choose another value for that case, "+
					"as in b == 0 ? 0 : a / b.")}
		}
		e.Op = &checked
		return nil
	})
}
