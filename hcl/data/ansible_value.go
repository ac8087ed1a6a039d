package data

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/zclconf/go-cty/cty"
)

// Value returns the inventory's value in expressions. A host has the variables of its groups, outermost first, and its
// own.
func (inv *Inventory) Value() (cty.Value, error) {
	members := map[string][]string{} // hosts by group, including those of child groups
	groupsOf := map[string][]string{}
	vars := map[string]map[string]any{}
	for name := range inv.Hosts {
		vars[name] = map[string]any{}
	}
	for _, name := range slices.Sorted(maps.Keys(inv.Groups)) {
		hosts, err := inv.members(name, nil, members)
		if err != nil {
			return cty.DynamicVal, err
		}
		if name == "all" {
			hosts = slices.Sorted(maps.Keys(inv.Hosts))
			members[name] = hosts
		}
		for _, h := range hosts {
			groupsOf[h] = append(groupsOf[h], name)
		}
	}
	depths := map[string]int{}
	for name := range inv.Groups {
		inv.depth(name, depths)
	}
	order := slices.Sorted(maps.Keys(inv.Groups))
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(depths[a], depths[b]), cmp.Compare(inv.Groups[a].Priority, inv.Groups[b].Priority))
	})
	for _, name := range order {
		for _, h := range members[name] {
			maps.Copy(vars[h], inv.Groups[name].Vars)
		}
	}
	hosts, groups := map[string]any{}, map[string]any{}
	for name, h := range inv.Hosts {
		all := vars[name]
		maps.Copy(all, h.Vars)
		list := slices.DeleteFunc(groupsOf[name], func(g string) bool { return g == "all" || g == "ungrouped" })
		host := map[string]any{"name": name, "address": name, "port": hostPort(all),
			"user":   connectionVariable(all, "user"),
			"groups": list, "vars": all}
		if list == nil {
			host["groups"] = []string{}
		}
		if address := connectionVariable(all, "host"); address != nil {
			host["address"] = fmt.Sprint(address)
		}
		hosts[name] = host
	}
	for name, list := range members {
		if list == nil {
			list = []string{}
		}
		groups[name] = list
	}
	return Value(map[string]any{"hosts": hosts, "groups": groups})
}

// connectionVariable returns the connection variable name of a host, or nil. As in Ansible, the old ansible_ssh_ name
// takes precedence over the ansible_ name.
func connectionVariable(vars map[string]any, name string) any {
	if v := vars["ansible_ssh_"+name]; v != nil {
		return v
	}
	return vars["ansible_"+name]
}

// hostPort returns a host's port: as an int if it is numeric text, otherwise unchanged.
func hostPort(vars map[string]any) any {
	v := connectionVariable(vars, "port")
	if text, ok := v.(string); ok {
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	}
	return v
}

// members returns the sorted hosts of a group and its child groups. resolved caches the results.
func (inv *Inventory) members(name string, path []string, resolved map[string][]string) ([]string, error) {
	if slices.Contains(path, name) {
		return nil, fmt.Errorf("the group %q contains itself", name)
	}
	if hosts, ok := resolved[name]; ok {
		return hosts, nil
	}
	g := inv.Groups[name]
	hosts := slices.Clone(g.Hosts)
	for _, child := range g.Children {
		more, err := inv.members(child, append(path, name), resolved)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, more...)
	}
	slices.Sort(hosts)
	resolved[name] = slices.Compact(hosts)
	return resolved[name], nil
}

// depth returns the largest distance of a group from all. Variables of deeper groups take precedence. The groups have
// no cycles.
func (inv *Inventory) depth(name string, depths map[string]int) int {
	if d, ok := depths[name]; ok {
		return d
	}
	d := 0
	for other, g := range inv.Groups {
		if slices.Contains(g.Children, name) {
			d = max(d, inv.depth(other, depths)+1)
		}
	}
	depths[name] = d
	return d
}
