package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/block"
)

// explainIndexes replaces the HCL library's error about an instance of a block that does not exist. The library says
// only that there is no such key; the new text lists the instances that exist.
func (e *evaluator) explainIndexes(n *node, diags hcl.Diagnostics) {
	for _, d := range diags {
		if d.Summary != "Invalid index" || d.Subject == nil {
			continue
		}
		for _, t := range n.needs {
			if detail := e.missingInstance(t, *d.Subject); detail != "" {
				d.Summary, d.Detail = "No such instance", detail
				break
			}
		}
	}
}

// missingInstance returns a text that lists the existing instances of the block that a reference names. It returns ""
// if the index at this position is not one of a missing instance.
func (e *evaluator) missingInstance(t hcl.Traversal, at hcl.Range) string {
	name, ok := secondName(t)
	after := 2
	if t.RootName() == "data" {
		after = 3
	}
	if !ok || len(t) <= after {
		return ""
	}
	index, isIndex := t[after].(hcl.TraverseIndex)
	n := e.nodes[t.RootName()+"."+name]
	if !isIndex || n == nil || n.block == nil || n.variable != nil || !at.Overlaps(index.SrcRange) ||
		at.Filename != index.SrcRange.Filename {
		return ""
	}
	v := e.kinds[n.root].values[n.name]
	if n.call != nil {
		v = n.call.moduleValue()
	}
	if v == cty.NilVal {
		return ""
	}
	v, _ = v.Unmark()
	base, missing := block.Address(t[:after]), block.Address(t[:after+1])
	switch {
	case n.hasAttribute("count") && v.Type().IsTupleType():
		switch maximum := v.LengthInt(); maximum {
		case 0:
			return fmt.Sprintf("There is no %s: count of %s is 0. Where it may be, use one(%s[*]), which is null then.",
				missing, base, base)
		case 1:
			return fmt.Sprintf("There is no %s: count of %s is 1, so that the only index is 0.", missing, base)
		default:
			return fmt.Sprintf("There is no %s: count of %s is %d, so that the indexes go from 0 to %d.", missing, base,
				maximum, maximum-1)
		}
	case n.hasAttribute("for_each") && v.Type().IsObjectType():
		keys := slices.Sorted(maps.Keys(v.Type().AttributeTypes()))
		if len(keys) == 0 {
			return fmt.Sprintf("There is no %s: for_each of %s is empty.", missing, base)
		}
		hint := ""
		if index.Key.Type() == cty.String {
			hint = block.Suggest(index.Key.AsString(), keys)
		}
		return fmt.Sprintf("There is no %s: the keys of %s are %s.%s", missing, base, shortenKeys(keys), hint)
	case !n.hasAttribute("count") && !n.hasAttribute("for_each"):
		return fmt.Sprintf("%s has neither count nor for_each: write %s without an index.", base, base)
	}
	return ""
}

// shortenKeys lists at most ten keys, and the number of the others.
func shortenKeys(keys []string) string {
	const maximum = 10
	var list []string
	for _, k := range keys[:min(maximum, len(keys))] {
		list = append(list, fmt.Sprintf("%q", k))
	}
	text := strings.Join(list, ", ")
	if len(keys) > maximum {
		text += fmt.Sprintf(" and %d more", len(keys)-maximum)
	}
	return text
}
