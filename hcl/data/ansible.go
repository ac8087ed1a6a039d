package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// maxHosts limits the number of hosts in an inventory, since ranges such as web[1:1000000] are easily written.
const maxHosts = 10000

// Inventory is an Ansible inventory.
type Inventory struct {
	Hosts  map[string]*InventoryHost
	Groups map[string]*InventoryGroup
}

// InventoryHost is a host, with variables of its own.
type InventoryHost struct{ Vars map[string]any }

// InventoryGroup is a group of hosts and child groups.
type InventoryGroup struct {
	Hosts    []string
	Children []string
	Vars     map[string]any
	Priority int64 // between groups of the same depth, variables of the higher priority win
}

// set sets a variable of the group. The variable ansible_group_priority sets the priority instead.
func (g *InventoryGroup) set(name string, value any) {
	if name == "ansible_group_priority" {
		switch n := value.(type) {
		case json.Number:
			if i, err := n.Int64(); err == nil {
				g.Priority = i
			}
		case string:
			_, _ = fmt.Sscanf(n, "%d", &g.Priority) // text that is not a number leaves the priority at zero
		}
		return
	}
	g.Vars[name] = value
}

// Ansible reads an inventory in INI, YAML, or the JSON that ansible-inventory --list prints. As in Ansible, the
// extension of the file name selects the format: .yaml, .yml and .json are YAML; a file without an extension is YAML if
// it parses as such; any other file is INI.
func Ansible(name string, text []byte) (*Inventory, error) {
	inv := &Inventory{Hosts: map[string]*InventoryHost{}, Groups: map[string]*InventoryGroup{}}
	inv.group("all")
	inv.group("ungrouped")
	text = WithoutBOM(text)
	var err error
	switch end := strings.ToLower(filepath.Ext(name)); {
	case end == ".toml":
		return nil, errors.New("inventories in TOML are not supported: use the output of ansible-inventory --list")
	case isList(text):
		err = inv.readList(text)
	case end == ".yaml" || end == ".yml" || end == ".json":
		err = inv.readYAML(text)
	case end == "":
		if err = inv.readYAML(text); errors.Is(err, errNotYAML) {
			err = inv.readINI(string(text))
		}
	default:
		err = inv.readINI(string(text))
	}
	if err != nil {
		return nil, err
	}
	if err := inv.addImplied(); err != nil {
		return nil, err
	}
	if len(inv.Hosts) > maxHosts {
		return nil, fmt.Errorf("the inventory has %d hosts; %d are the most", len(inv.Hosts), maxHosts)
	}
	return inv, nil
}

// addImplied adds the implied memberships. Groups without a parent become children of all. The group ungrouped gets
// exactly the hosts that are in no other group than all. It returns an error if a group contains itself.
func (inv *Inventory) addImplied() error {
	for name, g := range inv.Groups {
		for _, child := range g.Children {
			inv.group(child)
			if child == "all" || child == name {
				return fmt.Errorf("the group %q contains itself", child)
			}
		}
		for _, host := range g.Hosts {
			inv.host(host)
		}
	}
	children := map[string]bool{}
	grouped := map[string]bool{}
	for name, g := range inv.Groups {
		for _, child := range g.Children {
			children[child] = children[child] || name != "all"
		}
		if name != "all" && name != "ungrouped" {
			for _, host := range g.Hosts {
				grouped[host] = true
			}
		}
	}
	all, ungrouped := inv.Groups["all"], inv.Groups["ungrouped"]
	for name := range inv.Groups {
		if name != "all" && !children[name] && !slices.Contains(all.Children, name) {
			all.Children = append(all.Children, name)
		}
	}
	ungrouped.Hosts = slices.DeleteFunc(ungrouped.Hosts, func(host string) bool { return grouped[host] })
	for host := range inv.Hosts {
		if !grouped[host] && !slices.Contains(ungrouped.Hosts, host) {
			ungrouped.Hosts = append(ungrouped.Hosts, host)
		}
	}
	return nil
}

func (inv *Inventory) group(name string) *InventoryGroup {
	if inv.Groups[name] == nil {
		inv.Groups[name] = &InventoryGroup{Vars: map[string]any{}}
	}
	return inv.Groups[name]
}

func (inv *Inventory) host(name string) *InventoryHost {
	if inv.Hosts[name] == nil {
		inv.Hosts[name] = &InventoryHost{Vars: map[string]any{}}
	}
	return inv.Hosts[name]
}

// isList reports whether a text is the output of ansible-inventory --list, in which hosts and children are lists.
func isList(text []byte) bool {
	var groups map[string]json.RawMessage
	if json.Unmarshal(text, &groups) != nil {
		return false
	}
	if _, ok := groups["_meta"]; ok {
		return true
	}
	for _, raw := range groups {
		var list []any
		var group struct {
			Hosts, Children any
		}
		if json.Unmarshal(raw, &list) == nil && list != nil {
			return true
		}
		if json.Unmarshal(raw, &group) != nil {
			continue
		}
		_, hosts := group.Hosts.([]any)
		_, children := group.Children.([]any)
		if hosts || children {
			return true
		}
	}
	return false
}

// readList parses the output of ansible-inventory --list.
func (inv *Inventory) readList(text []byte) error {
	var groups map[string]json.RawMessage
	if err := json.Unmarshal(text, &groups); err != nil {
		return errors.New("an inventory in JSON is an object of groups, as ansible-inventory --list prints")
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if name == "_meta" {
			var meta struct {
				Hostvars map[string]map[string]any `json:"hostvars"`
			}
			if err := unmarshal(groups[name], &meta); err != nil {
				return fmt.Errorf("_meta: %w", err)
			}
			for host, vars := range meta.Hostvars {
				maps.Copy(inv.host(host).Vars, vars)
			}
			continue
		}
		g := inv.group(name)
		var hosts []string
		if json.Unmarshal(groups[name], &hosts) == nil {
			g.Hosts = append(g.Hosts, hosts...)
			continue
		}
		var raw struct {
			Hosts    []string       `json:"hosts"`
			Children []string       `json:"children"`
			Vars     map[string]any `json:"vars"`
		}
		if err := unmarshal(groups[name], &raw); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
		g.Hosts, g.Children = append(g.Hosts, raw.Hosts...), append(g.Children, raw.Children...)
		for key, value := range raw.Vars {
			g.set(key, value)
		}
	}
	return nil
}

// unmarshal decodes JSON with numbers as json.Number, so that large integers keep all digits.
func unmarshal(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}
