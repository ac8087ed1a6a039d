package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	nodes "sigs.k8s.io/yaml/goyaml.v3"
)

// errNotYAML is returned for text that is not YAML, or that is YAML but not an inventory.
var errNotYAML = errors.New("not an inventory in YAML")

// readYAML reads an inventory in YAML 1.1, which is the version that Ansible reads.
func (inv *Inventory) readYAML(text []byte) error {
	var document nodes.Node
	if err := nodes.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("%w: %w", errNotYAML, err)
	}
	r := yamlInventory{inv: inv, openNodes: map[*nodes.Node]bool{}}
	if len(document.Content) == 0 || document.Content[0].Kind != nodes.MappingNode {
		return fmt.Errorf("%w: it is not a mapping of groups", errNotYAML)
	}
	root := document.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "plugin" {
			return errors.New("it is the configuration of a plugin: use the output of ansible-inventory --list")
		}
	}
	return r.entries(root, func(name string, of *nodes.Node) error { return r.group(name, of) })
}

type yamlInventory struct {
	inv       *Inventory
	openNodes map[*nodes.Node]bool
	values    int
}

// entries calls do for each entry of a mapping. Entries of merge keys (<<) come first, so that the mapping's own
// entries override them.
func (r *yamlInventory) entries(n *nodes.Node, do func(key string, of *nodes.Node) error) error {
	if r.openNodes[n] {
		return fmt.Errorf("line %d: a mapping contains itself", n.Line)
	}
	r.openNodes[n] = true
	defer delete(r.openNodes, n)
	for _, merged := range []bool{true, false} {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, of := resolveAlias(n.Content[i]), resolveAlias(n.Content[i+1])
			if r.values++; r.values > maxYAMLValues {
				return fmt.Errorf("the inventory has more than %d values", maxYAMLValues)
			}
			if isMerge := key.ShortTag() == "!!merge"; isMerge != merged {
				continue
			} else if isMerge {
				list := []*nodes.Node{of}
				if of.Kind == nodes.SequenceNode {
					list = of.Content
				}
				for j := len(list) - 1; j >= 0; j-- { // the first merged mapping takes precedence, so it comes last
					if err := r.entries(resolveAlias(list[j]), do); err != nil {
						return err
					}
				}
				continue
			}
			if key.Kind != nodes.ScalarNode {
				return fmt.Errorf("line %d: a mapping's key must be text", key.Line)
			}
			name, err := keyText(yaml11Value(key))
			if err != nil {
				return fmt.Errorf("line %d: a mapping's key must be text", key.Line)
			}
			if err := do(name, of); err != nil {
				return err
			}
		}
	}
	return nil
}

func resolveAlias(n *nodes.Node) *nodes.Node {
	if n.Kind == nodes.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *nodes.Node) bool { return n.Kind == nodes.ScalarNode && yaml11Value(n) == nil }

// group reads a group. Like Ansible, it ignores a group that is neither a mapping nor null.
func (r *yamlInventory) group(name string, of *nodes.Node) error {
	if !isNull(of) && of.Kind != nodes.MappingNode {
		return nil
	}
	g := r.inv.group(name)
	if isNull(of) {
		return nil
	}
	sections := map[string]*nodes.Node{}
	if err := r.entries(of, func(key string, section *nodes.Node) error {
		if key == "vars" || key == "children" || key == "hosts" {
			sections[key] = section
		}
		return nil
	}); err != nil {
		return err
	}
	for _, key := range []string{"vars", "children", "hosts"} {
		section := sections[key]
		switch {
		case section == nil || isNull(section):
			continue
		case section.Kind == nodes.ScalarNode:
			text, ok := yaml11Value(section).(string)
			if !ok {
				return fmt.Errorf("line %d: %s of group %s is not a mapping", section.Line, key, name)
			}
			if err := r.entry(g, key, text, &nodes.Node{Kind: nodes.ScalarNode, Tag: "!!null"}); err != nil {
				return err
			}
			continue
		case section.Kind != nodes.MappingNode:
			return fmt.Errorf("line %d: %s of group %s is not a mapping", section.Line, key, name)
		}
		if err := r.entries(section, func(entry string, of *nodes.Node) error {
			return r.entry(g, key, entry, of)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *yamlInventory) entry(g *InventoryGroup, key, name string, of *nodes.Node) error {
	switch key {
	case "vars":
		v, err := r.value(of)
		if err == nil {
			g.set(name, v)
		}
		return err
	case "children":
		if len(r.openNodes) > 300 {
			return errors.New("groups are nested more than 100 deep")
		}
		if !isNull(of) && of.Kind != nodes.MappingNode {
			return fmt.Errorf("line %d: the child group %s is not a mapping", of.Line, name)
		}
		g.Children = append(g.Children, name)
		return r.group(name, of)
	}
	names, port, err := hostPattern(name)
	if err != nil {
		return fmt.Errorf("line %d: %w", of.Line, err)
	}
	vars := map[string]any{}
	if of.Kind == nodes.MappingNode {
		v, err := r.value(of)
		if err != nil {
			return err
		}
		vars = v.(map[string]any)
	} else if !isNull(of) {
		return fmt.Errorf("line %d: the variables of %s are not a mapping", of.Line, name)
	}
	for _, host := range names {
		r.inv.addHost(g, host, port, maps.Clone(vars))
	}
	return nil
}

func (r *yamlInventory) value(n *nodes.Node) (any, error) {
	if r.values++; r.values > maxYAMLValues {
		return nil, fmt.Errorf("the inventory has more than %d values", maxYAMLValues)
	}
	switch n = resolveAlias(n); n.Kind {
	case nodes.MappingNode:
		values := map[string]any{}
		err := r.entries(n, func(key string, of *nodes.Node) error {
			v, err := r.value(of)
			values[key] = v
			return err
		})
		return values, err
	case nodes.SequenceNode:
		if r.openNodes[n] {
			return nil, fmt.Errorf("line %d: a list contains itself", n.Line)
		}
		r.openNodes[n] = true
		defer delete(r.openNodes, n)
		list := []any{}
		for _, element := range n.Content {
			v, err := r.value(element)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	if tag := n.ShortTag(); tag == "!vault" || tag == "!vault-encrypted" {
		return nil, fmt.Errorf("line %d: a value is encrypted by ansible-vault: pass it as a variable of the "+
			"configuration", n.Line)
	}
	return yaml11Value(n), nil
}

// Plain scalars of YAML 1.1 that are not text. yaml11Sexagesimal matches numbers of base 60, such as 1:30.
var (
	yaml11Integer     = regexp.MustCompile(`^[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$`)
	yaml11Sexagesimal = regexp.MustCompile(`^[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)
	yaml11Float       = regexp.MustCompile(
		`^[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?)$`)
	yaml11Words = map[string]any{
		"": nil, "~": nil, "null": nil, "Null": nil, "NULL": nil,
		"yes": true, "Yes": true, "YES": true, "true": true, "True": true, "TRUE": true, "on": true, "On": true,
		"ON": true,
		"no": false, "No": false, "NO": false, "false": false, "False": false, "FALSE": false, "off": false,
		"Off": false, "OFF": false,
	}
)

// yaml11Value returns the value of a scalar: nil, bool, json.Number or string.
func yaml11Value(n *nodes.Node) any {
	if n.Style&(nodes.DoubleQuotedStyle|nodes.SingleQuotedStyle|nodes.LiteralStyle|nodes.FoldedStyle) != 0 ||
		n.Style&nodes.TaggedStyle != 0 && n.ShortTag() == "!!str" {
		return n.Value
	}
	text := n.Value
	if v, ok := yaml11Words[text]; ok {
		return v
	}
	digits := strings.ReplaceAll(strings.TrimPrefix(text, "+"), "_", "")
	switch {
	case yaml11Integer.MatchString(text):
		plain := strings.TrimPrefix(digits, "-")
		if i, ok := new(big.Int).SetString(plain, 0); ok {
			if strings.HasPrefix(digits, "-") {
				i.Neg(i)
			}
			return json.Number(i.String())
		}
	case yaml11Sexagesimal.MatchString(text):
		total := 0.0
		for part := range strings.SplitSeq(strings.TrimPrefix(digits, "-"), ":") {
			f, err := strconv.ParseFloat(part, 64)
			if err != nil {
				return text
			}
			total = total*60 + f
		}
		if strings.HasPrefix(digits, "-") {
			total = -total
		}
		return json.Number(strconv.FormatFloat(total, 'f', -1, 64))
	case yaml11Float.MatchString(text):
		if f, err := strconv.ParseFloat(digits, 64); err == nil {
			return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
		}
	case n.ShortTag() == "!!timestamp":
		return pythonTime(text)
	}
	return text
}

var yaml11Time = regexp.MustCompile(`^([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})` +
	`(?:(?:[Tt]|[ \t]+)([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]*))?` +
	`(?:[ \t]*(Z|([-+])([0-9]{1,2})(?::?([0-9]{2}))?))?)?$`)

// pythonTime formats a YAML date or timestamp as Python's isoformat does. It returns any other text unchanged.
func pythonTime(text string) string {
	m := yaml11Time.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	number := func(s string) int { n, _ := strconv.Atoi(s); return n } // yaml11Time matches only digits
	if m[4] == "" {
		return fmt.Sprintf("%04d-%02d-%02d", number(m[1]), number(m[2]), number(m[3]))
	}
	fraction := (m[7] + "000000")[:6]
	zone := ""
	switch {
	case m[8] == "Z":
		zone = "+00:00"
	case m[8] != "":
		zone = fmt.Sprintf("%s%02d:%02d", m[9], number(m[10]), number(m[11]))
	}
	t := time.Date(number(m[1]), time.Month(number(m[2])), number(m[3]), number(m[4]), number(m[5]), number(m[6]),
		0, time.UTC)
	out := t.Format("2006-01-02T15:04:05")
	if fraction != "000000" {
		out += "." + fraction
	}
	return out + zone
}
