package load

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Declaration is something that the files declare, and what its expressions refer to.
type Declaration struct {
	Address string   // var.x, local.x, machine.x, object.v1.ConfigMap.x
	Needs   []string // addresses, sorted
}

// graph lists the declarations with the references between them.
func (e *evaluator) graph() []Declaration {
	var list []Declaration
	for _, key := range e.order {
		d := Declaration{Address: address(key)}
		for _, t := range e.nodes[key].references() {
			if len(t) < 2 {
				continue
			}
			name, ok := t[1].(hcl.TraverseAttr)
			if !ok {
				continue
			}
			if to := t.RootName() + "." + name.Name; e.nodes[to] != nil && to != key {
				d.Needs = append(d.Needs, to)
			}
		}
		slices.Sort(d.Needs)
		d.Needs = slices.Compact(d.Needs)
		list = append(list, d)
	}
	return list
}

// address leaves out where an object was declared.
func address(key string) string {
	text, _, _ := strings.Cut(key, "@")
	return text
}
