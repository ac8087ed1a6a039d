package block

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"clusterctl/hcl/config"
)

type conditionBlock struct {
	Condition    hcl.Expression `hcl:"condition" doc:"What must be true."`
	ErrorMessage hcl.Expression `hcl:"error_message" doc:"The message when it is false."`
}

type checkBlock struct {
	Asserts []conditionBlock `hcl:"assert,block" doc:"A condition that should be true."`
}

// conditionalTypes are the block types that may contain precondition and postcondition blocks.
var conditionalTypes = []string{
	"machine",
	"image",
	"workload",
	"object",
	"storage_class",
	"load_balancer",
	"git_source",
	"helm_release",
	"kustomization",
	"manifests",
	"output",
	"data",
}

// rule is a condition with the message for when it does not hold.
type rule struct{ condition, message hcl.Expression }

// conditions returns the preconditions and postconditions of a block, and the rest of its body.
func conditions(b *hcl.Block) (before, after []rule, rest hcl.Body, diags hcl.Diagnostics) {
	matches := func(inner *hclsyntax.Block) bool {
		return inner.Type == "precondition" || inner.Type == "postcondition"
	}
	if native, ok := b.Body.(*hclsyntax.Body); ok && !slices.ContainsFunc(native.Blocks, matches) ||
		!slices.Contains(conditionalTypes, b.Type) {
		return nil, nil, b.Body, nil
	}
	content, rest, diags := b.Body.PartialContent(
		&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "precondition"}, {Type: "postcondition"}}},
	)
	for _, inner := range content.Blocks {
		r, more := decodeRule(inner.Body)
		if diags = append(diags, more...); more.HasErrors() {
			continue
		}
		if inner.Type == "precondition" {
			before = append(before, r)
		} else if after = append(after, r); b.Type == "object" || b.Type == "manifests" {
			diags = append(diags, newError(inner.DefRange.Ptr(), "Postcondition of "+
				"nothing", "Expressions cannot refer to this block, so there is no self. Write a "+
				"precondition."))
		}
	}
	return before, after, rest, diags
}

func decodeRule(body hcl.Body) (rule, hcl.Diagnostics) {
	content, diags := ExplainErrors(body).Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "condition", Required: true}, {Name: "error_message", Required: true},
	}})
	if diags.HasErrors() {
		return rule{}, diags
	}
	return rule{content.Attributes["condition"].Expr, content.Attributes["error_message"].Expr}, diags
}

// checkRules returns diagnostics for the rules that do not hold. Conditions that are not known yet are skipped.
func checkRules(
	rules []rule,
	eval *hcl.EvalContext,
	severity hcl.DiagnosticSeverity,
	summary string,
) (diags hcl.Diagnostics) {
	for _, r := range rules {
		v, more := r.condition.Value(eval)
		diags = append(diags, more...)
		if more.HasErrors() {
			continue
		}
		v, _ = v.UnmarkDeep()
		v, err := convert.Convert(v, cty.Bool)
		if err != nil || v.IsNull() {
			diags = append(diags, newError(r.condition.Range().Ptr(), "Invalid condition",
				"A condition must be true or false."))
			continue
		}
		if !v.IsKnown() || v.True() {
			continue
		}
		message, more := r.message.Value(eval)
		diags = append(diags, more...)
		text := "The condition does not hold. Its message has a sensitive value in it and is not shown."
		if !message.ContainsMarked() {
			converted, err := convert.Convert(message, cty.String)
			if err != nil || converted.IsNull() || !converted.IsKnown() {
				diags = append(diags, newError(r.message.Range().Ptr(), "Invalid message",
					"A condition's message is a text."))
				continue
			}
			text = converted.AsString()
		}
		diags = append(
			diags,
			&hcl.Diagnostic{
				Severity:    severity,
				Summary:     summary,
				Detail:      text,
				Subject:     r.condition.Range().Ptr(),
				Expression:  r.condition,
				EvalContext: eval,
			},
		)
	}
	return diags
}

// CheckAsserts returns diagnostics for the assert blocks that do not hold.
func CheckAsserts(asserts hcl.Blocks, eval *hcl.EvalContext) (diags hcl.Diagnostics) {
	for _, b := range asserts {
		r, more := decodeRule(b.Body)
		if diags = append(diags, more...); !more.HasErrors() {
			diags = append(diags, checkRules([]rule{r}, eval, hcl.DiagError, "Test assertion failed")...)
		}
	}
	return diags
}

// withSelf returns a context in which self is the block's value in expressions.
func withSelf(eval *hcl.EvalContext, v cty.Value) *hcl.EvalContext {
	child := eval.NewChild()
	child.Variables = map[string]cty.Value{"self": v}
	return child
}

// decodeCheck evaluates a check block. Assertions that do not hold become warnings.
func decodeCheck(x *Context, b *hcl.Block, _ *config.Cluster) (cty.Value, hcl.Diagnostics) {
	content, diags := ExplainErrors(b.Body).Content(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "assert"}}})
	if diags.HasErrors() {
		return cty.NilVal, diags
	}
	if len(content.Blocks) == 0 {
		return cty.NilVal, append(diags, newError(b.DefRange.Ptr(), "Check of nothing",
			"A check has at least one assert { condition = …, error_message = … }."))
	}
	var rules []rule
	for _, inner := range content.Blocks {
		r, more := decodeRule(inner.Body)
		if diags = append(diags, more...); !more.HasErrors() {
			rules = append(rules, r)
		}
	}
	return cty.NilVal, append(diags, checkRules(rules, x.Eval, hcl.DiagWarning, "Check failed: "+b.Labels[0])...)
}
