package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxHosts is how many hosts an inventory may have: ranges as web[1:1000000] are written quickly.
const maxHosts = 10000

// Inventory is an inventory of Ansible.
type Inventory struct {
	Hosts  map[string]*InventoryHost
	Groups map[string]*InventoryGroup
}

// InventoryHost is a host, with variables of its own.
type InventoryHost struct{ Vars map[string]any }

// InventoryGroup is a group of hosts and of other groups.
type InventoryGroup struct {
	Hosts    []string
	Children []string
	Vars     map[string]any
}

// Ansible reads an inventory, in whichever of its forms it is.
func Ansible(text []byte) (*Inventory, error) {
	inv := &Inventory{Hosts: map[string]*InventoryHost{}, Groups: map[string]*InventoryGroup{}}
	inv.group("all")
	var err error
	switch {
	case json.Valid(text):
		err = inv.readList(text)
	case looksLikeYAML(text):
		err = inv.readYAML(text)
	default:
		err = inv.readINI(string(text))
	}
	if err != nil {
		return nil, err
	}
	for name, g := range inv.Groups {
		for _, child := range g.Children {
			inv.group(child)
		}
		for _, host := range g.Hosts {
			inv.host(host)
		}
		if name != "all" && !inv.isChild(name) {
			inv.Groups["all"].Children = append(inv.Groups["all"].Children, name)
		}
	}
	if len(inv.Hosts) > maxHosts {
		return nil, fmt.Errorf("the inventory has %d hosts; %d are the most", len(inv.Hosts), maxHosts)
	}
	return inv, nil
}

func looksLikeYAML(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		return line == "---" || !strings.HasPrefix(line, "[") && strings.HasSuffix(strings.TrimSpace(strings.SplitN(line, " #", 2)[0]), ":")
	}
	return false
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

func (inv *Inventory) isChild(name string) bool {
	for other, g := range inv.Groups {
		if other != name && slices.Contains(g.Children, name) {
			return true
		}
	}
	return false
}

// readList reads what ansible-inventory --list prints.
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
			if err := json.Unmarshal(groups[name], &meta); err != nil {
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
		if err := json.Unmarshal(groups[name], &raw); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
		g.Hosts, g.Children = append(g.Hosts, raw.Hosts...), append(g.Children, raw.Children...)
		maps.Copy(g.Vars, raw.Vars)
	}
	return nil
}

// yamlGroup is a group in an inventory in YAML.
type yamlGroup struct {
	Hosts    map[string]map[string]any `json:"hosts"`
	Children map[string]*yamlGroup     `json:"children"`
	Vars     map[string]any            `json:"vars"`
}

func (inv *Inventory) readYAML(text []byte) error {
	var groups map[string]*yamlGroup
	if err := yaml.UnmarshalStrict(text, &groups); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if err := inv.takeYAML(name, groups[name], 0); err != nil {
			return err
		}
	}
	return nil
}

func (inv *Inventory) takeYAML(name string, raw *yamlGroup, depth int) error {
	g := inv.group(name)
	if raw == nil {
		return nil
	}
	if depth > 100 {
		return errors.New("groups are nested more than 100 deep")
	}
	maps.Copy(g.Vars, raw.Vars)
	for _, pattern := range slices.Sorted(maps.Keys(raw.Hosts)) {
		names, err := unfold(pattern)
		if err != nil {
			return err
		}
		for _, host := range names {
			g.Hosts = append(g.Hosts, host)
			maps.Copy(inv.host(host).Vars, raw.Hosts[pattern])
		}
	}
	for _, child := range slices.Sorted(maps.Keys(raw.Children)) {
		g.Children = append(g.Children, child)
		if err := inv.takeYAML(child, raw.Children[child], depth+1); err != nil {
			return err
		}
	}
	return nil
}
