package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/block"
)

// checkRepetition returns an error for each or count in a block that has no such attribute.
func (n *node) checkRepetition(t hcl.Traversal) hcl.Diagnostics {
	by := map[string]string{"each": "for_each", "count": "count"}[t.RootName()]
	if by == "" || n.hasAttribute(by) {
		return nil
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: fmt.Sprintf("%s outside %s", t.RootName(), by),
		Detail: fmt.Sprintf("%s is known in a block with %s = …, and this has none.", t.RootName(),
			by), Subject: t.SourceRange().Ptr()}}
}

// hasAttribute reports whether a block has an attribute.
func (n *node) hasAttribute(name string) bool {
	if n.body == nil {
		return false
	}
	return block.HasAttribute(n.body, name)
}

// evaluateDependsOn evaluates the blocks that depends_on names, so that cycles are found. It returns an error if one
// does not exist.
func (e *evaluator) evaluateDependsOn(n *node, path []string) (diags hcl.Diagnostics) {
	if !n.hasAttribute("depends_on") {
		return nil
	}
	content, _, _ := n.body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "depends_on"}}})
	a := content.Attributes["depends_on"]
	addresses, _ := block.Addresses(a.Expr) // decoding the block reports errors in it
	for _, address := range addresses {
		keys := e.nodesOf(address)
		for _, key := range keys {
			if other := e.nodes[key]; other.call != nil {
				diags = append(diags, e.enterModule(other, key, path)...)
				continue
			}
			diags = append(diags, e.evaluate(key, path)...)
		}
		if len(keys) == 0 {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Unknown reference",
				Detail: fmt.Sprintf("There is no %s.%s", address, block.Suggest(address,
					slices.Sorted(maps.Keys(e.addresses)))), Subject: a.Expr.Range().Ptr()})
		}
	}
	return diags
}

// nodesOf returns the keys of the nodes that an address names. The address may be that of an instance.
func (e *evaluator) nodesOf(address string) []string {
	if e.addresses == nil {
		e.addresses = map[string][]string{}
		for _, key := range e.order {
			n := e.nodes[key]
			if n.root != "var" && n.root != "local" && n.root != "output" {
				e.addresses[nodeAddress(key)] = append(e.addresses[nodeAddress(key)], key)
			}
		}
	}
	whole, _, _ := strings.Cut(address, "[")
	if rest, ok := strings.CutPrefix(whole, "module."); ok {
		name, _, _ := strings.Cut(rest, ".")
		whole = "module." + name
	}
	return e.addresses[whole]
}
