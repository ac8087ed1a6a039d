package block

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// withoutDependsOn are the block types that do not support depends_on, with the reason.
var withoutDependsOn = map[string]string{
	"machine": "Machines are set up together, and in the order that the control plane needs; nothing of them " +
		"waits for another block. Leave depends_on out.",
	"data": "Data is read before anything is applied. Leave depends_on out; a reference in the block says " +
		"what it needs.",
	"load_balancer": "All pools are applied together, and services wait for their addresses by themselves. Leave " +
		"depends_on out.",
	"image": "Images are on the nodes before anything is applied that could use them. Leave depends_on out.",
}

// dependsOn returns the addresses in depends_on, and the rest of the body.
func dependsOn(x *Context, b *hcl.Block, body hcl.Body) ([]string, hcl.Body, hcl.Diagnostics) {
	if native, ok := body.(*hclsyntax.Body); ok && native.Attributes["depends_on"] == nil {
		return nil, body, nil
	}
	content, rest, diags := body.PartialContent(
		&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "depends_on"}}},
	)
	a, ok := content.Attributes["depends_on"]
	if !ok || diags.HasErrors() {
		return nil, rest, diags
	}
	if reason := withoutDependsOn[b.Type]; reason != "" {
		return nil, rest, append(diags, newError(a.Range.Ptr(), "Order that has no meaning", "%s", reason))
	}
	list, more := Addresses(a.Expr)
	for i, address := range list {
		list[i] = x.Module + address
	}
	return list, rest, append(diags, more...)
}

// Addresses parses a list of references, as in depends_on. An address that is not a valid reference, such as
// object.apps/v1.Deployment.x, is written as a string.
func Addresses(expr hcl.Expression) (list []string, diags hcl.Diagnostics) {
	items, diags := hcl.ExprList(expr)
	if diags.HasErrors() {
		return nil, hcl.Diagnostics{
			newError(expr.Range().Ptr(), "Invalid depends_on",
				"Write a list of what is to be there before, as [workload.db, object.v1.Secret.key]."),
		}
	}
	for _, item := range items {
		t, more := hcl.AbsTraversalForExpr(item)
		if !more.HasErrors() {
			list = append(list, Address(t))
			continue
		}
		v, more := item.Value(nil)
		if more.HasErrors() || v.IsNull() || v.Type() != cty.String {
			diags = append(diags, newError(item.Range().Ptr(), "Invalid depends_on",
				"This is not a reference to a block, as workload.db or module.base."))
			continue
		}
		list = append(list, v.AsString())
	}
	return list, diags
}

// Address formats a reference as an address.
func Address(t hcl.Traversal) string {
	var out strings.Builder
	for _, step := range t {
		switch s := step.(type) {
		case hcl.TraverseRoot:
			out.WriteString(s.Name)
		case hcl.TraverseAttr:
			out.WriteString("." + s.Name)
		case hcl.TraverseIndex:
			if s.Key.Type() == cty.String {
				fmt.Fprintf(&out, "[%q]", s.Key.AsString())
			} else if s.Key.Type() == cty.Number {
				n, _ := s.Key.AsBigFloat().Int64()
				out.WriteString("[" + strconv.FormatInt(n, 10) + "]")
			}
		}
	}
	return out.String()
}
