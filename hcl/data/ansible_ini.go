package data

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Patterns of a section header, and of a line with the name of a child group.
var (
	iniSection = regexp.MustCompile(`^\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?$`)
	iniGroup   = regexp.MustCompile(`^([^:\]\s]+)\s*(?:#.*)?$`)
)

// iniReader reads inventories in INI, with [sections], lines of hosts, and NAME=VALUE.
type iniReader struct {
	inv     *Inventory
	defined map[string]bool // groups that have a section of hosts or children
	used    map[string]int  // groups that are referenced but not defined yet, with the line number
	ofVars  map[string]bool // the groups in used whose reference is [GROUP:vars]
}

func (inv *Inventory) readINI(text string) error {
	r := &iniReader{inv: inv, defined: map[string]bool{"all": true, "ungrouped": true}, used: map[string]int{},
		ofVars: map[string]bool{}}
	section, part := "ungrouped", "hosts"
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if m := iniSection.FindStringSubmatch(line); m != nil {
			if section, part = m[1], m[2]; part == "" {
				part = "hosts"
			}
			if part != "hosts" && part != "vars" && part != "children" {
				return fmt.Errorf("line %d: %q is not [GROUP], [GROUP:vars] or [GROUP:children]", number, line)
			}
			r.section(section, part, number)
			continue
		}
		if line[0] == '[' && line[len(line)-1] == ']' {
			return fmt.Errorf("line %d: %q is not [GROUP], [GROUP:vars] or [GROUP:children]", number, line)
		}
		if err := r.line(section, part, line, number); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(r.used) == 0 {
		return nil
	}
	name := slices.Min(slices.Collect(maps.Keys(r.used)))
	if r.ofVars[name] {
		return fmt.Errorf("line %d: [%s:vars] names a group that is not defined", r.used[name], name)
	}
	return fmt.Errorf("line %d: the group %s is not defined", r.used[name], name)
}

func (r *iniReader) section(name, part string, number int) {
	r.inv.group(name)
	if part != "vars" {
		r.defined[name] = true
		delete(r.used, name)
	} else if _, used := r.used[name]; !r.defined[name] && !used {
		r.used[name], r.ofVars[name] = number, true
	}
}

func (r *iniReader) line(section, part, line string, number int) error {
	g := r.inv.group(section)
	switch part {
	case "vars":
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE", line)
		}
		g.set(strings.TrimSpace(name), pythonLiteral(strings.TrimSpace(value)))
		return nil
	case "children":
		m := iniGroup.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("%q is not the name of a group", line)
		}
		if _, used := r.used[m[1]]; !r.defined[m[1]] && !used {
			r.used[m[1]] = number
		}
		g.Children = append(g.Children, m[1])
		r.inv.group(m[1])
		return nil
	}
	words, err := splitShell(line)
	if err != nil || len(words) == 0 {
		return err
	}
	names, port, err := hostPattern(words[0])
	if err != nil {
		return err
	}
	if len(r.inv.Hosts)+len(names) > maxHosts {
		return fmt.Errorf("with this line there are more than %d hosts", maxHosts)
	}
	vars := map[string]any{}
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE", word)
		}
		vars[key] = pythonLiteral(value)
	}
	for _, name := range names {
		r.inv.addHost(g, name, port, vars)
	}
	return nil
}

// addHost adds a host to a group and sets its variables. A port applies only when the host is new.
func (inv *Inventory) addHost(g *InventoryGroup, name string, port int, vars map[string]any) {
	_, ok := inv.Hosts[name]
	h := inv.host(name)
	if port > 0 && !ok {
		h.Vars["ansible_port"] = port
	}
	if !slices.Contains(g.Hosts, name) {
		g.Hosts = append(g.Hosts, name)
	}
	maps.Copy(h.Vars, vars)
}

// splitShell divides a line into words with the quoting rules of a POSIX shell. A # outside quotes starts a comment,
// even within a word.
func splitShell(line string) (words []string, err error) {
	var word strings.Builder
	quote, started := byte(0), false
	end := func() {
		if started {
			words = append(words, word.String())
		}
		word.Reset()
		started = false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '"' && c == '\\' && i+1 < len(line) && (line[i+1] == '"' || line[i+1] == '\\'),
			quote == 0 && c == '\\':
			if i++; i == len(line) {
				return nil, errors.New("the line ends with a backslash")
			}
			word.WriteByte(line[i])
			started = true
		case quote == 0 && (c == '"' || c == '\''):
			quote, started = c, true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\r'):
			end()
		case quote == 0 && c == '#':
			end()
			return words, nil
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quotation does not end")
	}
	end()
	return words, nil
}

var (
	bracketedPort = regexp.MustCompile(`^\[(.+)\]:([0-9]+)$`)
	plainPort     = regexp.MustCompile(`^((?:[^:\[\]]|\[[^\]]*\])+):([0-9]+)$`)
)

// hostPattern reads a host name, an address or a range of hosts, with an optional port. It returns port 0 if there is
// none.
func hostPattern(pattern string) (names []string, port int, err error) {
	for _, form := range []*regexp.Regexp{bracketedPort, plainPort} {
		m := form.FindStringSubmatch(pattern)
		if m == nil {
			continue
		}
		if port, err = strconv.Atoi(m[2]); err != nil || port > 65535 {
			return nil, 0, fmt.Errorf("%q: %s is not a port", pattern, m[2])
		}
		pattern = m[1]
		break
	}
	if port == 0 && strings.HasSuffix(pattern, ":") {
		return nil, 0, fmt.Errorf("%q: there is no port after the colon", pattern)
	}
	names, err = expandRange(pattern)
	return names, port, err
}

const rangeLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// expandRange returns the names that a pattern such as web[01:10].example.com or db-[a:c] stands for. As in Ansible, a
// range whose end is before its start has no names.
func expandRange(pattern string) ([]string, error) {
	start := strings.IndexByte(pattern, '[')
	if start < 0 {
		return []string{pattern}, nil
	}
	end := strings.IndexByte(pattern, ']')
	wrong := fmt.Errorf("%q is not a range of hosts, such as web[01:10] or db-[a:c]", pattern)
	if end < start {
		return nil, wrong
	}
	bounds := strings.Split(pattern[start+1:end], ":")
	if len(bounds) != 2 && len(bounds) != 3 {
		return nil, wrong
	}
	step := 1
	if len(bounds) == 3 {
		var err error
		if step, err = strconv.Atoi(bounds[2]); err != nil || step < 1 {
			return nil, fmt.Errorf("%q: the step is a number from 1", pattern)
		}
	}
	if bounds[0] == "" {
		bounds[0] = "0"
	}
	var parts []string
	if i, j := letterIndex(bounds[0]), letterIndex(bounds[1]); i >= 0 && j >= 0 {
		for ; i <= j; i += step {
			parts = append(parts, rangeLetters[i:i+1])
		}
	} else {
		width := 0
		if bounds[0][0] == '0' && len(bounds[0]) > 1 {
			if width = len(bounds[0]); width != len(bounds[1]) {
				return nil, fmt.Errorf("%q: both ends of a range must have the same number of digits", pattern)
			}
		}
		from, err := strconv.Atoi(bounds[0])
		to, err2 := strconv.Atoi(bounds[1])
		if err != nil || err2 != nil || from < 0 || (to-from)/step >= maxHosts {
			return nil, wrong
		}
		for ; from <= to; from += step {
			parts = append(parts, fmt.Sprintf("%0*d", width, from))
		}
	}
	rest, err := expandRange(pattern[end+1:])
	if err != nil {
		return nil, err
	}
	if len(rest)*len(parts) > maxHosts {
		return nil, fmt.Errorf("%q means more than %d hosts", pattern, maxHosts)
	}
	var list []string
	for _, part := range parts {
		for _, r := range rest {
			list = append(list, pattern[:start]+part+r)
		}
	}
	return list, nil
}

func letterIndex(text string) int {
	if len(text) != 1 {
		return -1
	}
	return strings.IndexByte(rangeLetters, text[0])
}
