package block

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/config"
)

type outputBlock struct {
	Value       hcl.Expression `hcl:"value" doc:"Any expression."`
	Description string         `hcl:"description,optional" doc:"For the reader."`
	Sensitive   bool           `hcl:"sensitive,optional" doc:"Not shown; output -json has it." default:"false"`
}

func decodeOutput(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw outputBlock
	diags := gohcl.DecodeBody(b.Body, x.Eval, &raw)
	if diags.HasErrors() {
		return cty.NilVal, diags
	}
	v, more := raw.Value.Value(x.Eval)
	diags = append(diags, more...)
	if more.HasErrors() {
		return cty.NilVal, diags
	}
	plain, err := Plain(v)
	if err != nil {
		return cty.NilVal, append(diags, fail(raw.Value.Range().Ptr(), "Invalid output", "%v.", err))
	}
	c.Outputs = append(c.Outputs, config.Output{Name: b.Labels[0], Description: raw.Description, Sensitive: raw.Sensitive, Value: plain})
	return cty.NilVal, diags
}
