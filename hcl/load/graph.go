package load

import (
	"maps"
	"slices"
	"strings"
)

// Declaration is a declaration in the files, with what its expressions refer to.
type Declaration struct {
	Address string   // such as var.x, local.x, machine.x or object.v1.ConfigMap.x
	Needs   []string // sorted addresses
}

// declarations returns the declarations with the references between them.
func (e *evaluator) declarations() (list []Declaration) {
	for _, key := range e.order {
		d := Declaration{Address: e.prefix + nodeAddress(key)}
		for _, t := range e.nodes[key].needs {
			name, ok := secondName(t)
			if !ok {
				continue
			}
			if to := t.RootName() + "." + name; e.nodes[to] != nil && to != key {
				d.Needs = append(d.Needs, e.prefix+to)
			}
		}
		if c := e.nodes[key].call; c != nil {
			for _, name := range slices.Sorted(maps.Keys(c.inputs)) {
				for _, t := range c.inputs[name].Expr.Variables() {
					if second, ok := secondName(t); ok && e.nodes[t.RootName()+"."+second] != nil {
						d.Needs = append(d.Needs, e.prefix+t.RootName()+"."+second)
					}
				}
			}
			defer func() {
				for _, child := range c.children {
					list = append(list, child.declarations()...)
				}
			}()
		}
		slices.Sort(d.Needs)
		d.Needs = slices.Compact(d.Needs)
		list = append(list, d)
	}
	return list
}

// nodeAddress removes the position that the key of an object contains.
func nodeAddress(key string) string {
	text, _, _ := strings.Cut(key, "@")
	return text
}
