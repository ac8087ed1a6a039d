package block

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/dynblock"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// expandDynamic returns a body in which dynamic blocks are replaced by the blocks that they generate.
func expandDynamic(body hcl.Body, eval *hcl.EvalContext) hcl.Body {
	if native, ok := body.(*hclsyntax.Body); ok && !hasDynamic(native) {
		return body
	}
	return dynblock.Expand(body, eval, dynblock.OptCheckForEach(checkDynamic))
}

func hasDynamic(body *hclsyntax.Body) bool {
	return slices.ContainsFunc(body.Blocks,
		func(b *hclsyntax.Block) bool { return b.Type == "dynamic" || hasDynamic(b.Body) })
}

// checkDynamic applies the checks of a block's for_each to a dynamic block.
func checkDynamic(v cty.Value, expr hcl.Expression, eval *hcl.EvalContext) hcl.Diagnostics {
	switch {
	case v.ContainsMarked():
		return hcl.Diagnostics{sensitiveRepeatError("for_each", &hcl.Attribute{Expr: expr})}
	case v.IsKnown() && !v.IsNull() && v.CanIterateElements() && v.LengthInt() > MaxInstances:
		return hcl.Diagnostics{
			newError(expr.Range().Ptr(), "Invalid for_each", "for_each has %d elements; %d are the most.",
				v.LengthInt(), MaxInstances),
		}
	}
	return nil
}
