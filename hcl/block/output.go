package block

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/config"
)

type outputBlock struct {
	Value       hcl.Expression `hcl:"value" doc:"Any expression."`
	Description string         `hcl:"description,optional" doc:"Description for readers."`
	Sensitive   bool           `hcl:"sensitive,optional" doc:"Do not show the value; output -raw NAME and output -json print it. Required if the value comes from a sensitive variable." default:"false"`
}

func decodeOutput(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw outputBlock
	diags := x.decode(b.Body, x.Eval, &raw)
	if diags.HasErrors() {
		return cty.NilVal, diags
	}
	if content, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{
		Name: "value"}}}); content.Attributes["value"] == nil {
		return cty.NilVal, append(diags, newError(b.DefRange.Ptr(), "Output without a value",
			"Say what output %q is: value = ….", b.Labels[0]))
	}
	expr := raw.Value
	if opened, ok := expr.(openExpression); ok {
		expr = opened.Expression
	}
	v, more := expr.Value(x.Eval)
	diags = append(diags, more...)
	if more.HasErrors() {
		return cty.NilVal, diags
	}
	if v.ContainsMarked() && !raw.Sensitive {
		return cty.NilVal, append(diags, newError(expr.Range().Ptr(), "Output of a sensitive value",
			"The value comes from a sensitive variable. Write sensitive = true in output %q: then it is shown only "+
				"by output -raw %s and output -json. Or say with nonsensitive(…) that it may be shown.", b.Labels[0],
			b.Labels[0]))
	}
	if raw.Sensitive {
		v = v.Mark(Sensitive)
	}
	if x.Module != "" { // the calling module reads it
		return v, diags
	}
	plain, err := ToPlain(x.unmark(v))
	if err != nil {
		return cty.NilVal, append(diags, newError(raw.Value.Range().Ptr(), "Invalid output", "%v.", err))
	}
	c.Outputs = append(c.Outputs, config.Output{Name: b.Labels[0], Sensitive: raw.Sensitive, Value: plain})
	return v, diags
}
