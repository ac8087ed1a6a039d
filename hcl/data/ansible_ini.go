package data

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// readINI reads the form with [sections], lines of hosts and name=value.
func (inv *Inventory) readINI(text string) error {
	section, part := "ungrouped", ""
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			name, _, ok := strings.Cut(line[1:], "]")
			if section, part, _ = strings.Cut(name, ":"); !ok || section == "" || part != "" && part != "vars" && part != "children" {
				return fmt.Errorf("line %d: %q is not [GROUP], [GROUP:vars] or [GROUP:children]", number, line)
			}
			inv.group(section)
			continue
		}
		if err := inv.takeLine(section, part, line); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}

func (inv *Inventory) takeLine(section, part, line string) error {
	g := inv.group(section)
	switch part {
	case "vars":
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE", line)
		}
		g.Vars[strings.TrimSpace(name)] = literal(strings.Trim(strings.TrimSpace(value), `"'`))
		return nil
	case "children":
		child, _, _ := strings.Cut(line, " ")
		g.Children = append(g.Children, child)
		inv.group(child)
		return nil
	}
	words, err := split(line)
	if err != nil || len(words) == 0 {
		return err
	}
	names, err := unfold(words[0])
	if err != nil {
		return err
	}
	if len(inv.Hosts)+len(names) > maxHosts {
		return fmt.Errorf("with this line there are more than %d hosts", maxHosts)
	}
	for _, name := range names {
		if host, port, ok := strings.Cut(name, ":"); ok && !strings.Contains(port, ":") {
			if n, err := strconv.Atoi(port); err == nil {
				name = host
				inv.host(name).Vars["ansible_port"] = n
			}
		}
		h := inv.host(name)
		g.Hosts = append(g.Hosts, name)
		for _, word := range words[1:] {
			key, value, ok := strings.Cut(word, "=")
			if !ok {
				return fmt.Errorf("%q is not NAME=VALUE", word)
			}
			h.Vars[key] = literal(value)
		}
	}
	return nil
}

// split cuts a line at white space outside quotes, up to a comment.
func split(line string) (words []string, err error) {
	var word strings.Builder
	quote, begun := byte(0), false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, begun = c, true
		case quote != 0 && c == '\\' && quote == '"' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case quote == 0 && (c == ' ' || c == '\t'):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		case quote == 0 && c == '#' && !begun:
			return words, nil
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quotation does not end")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// literal is a value as Ansible reads it: a number, a truth, or text.
func literal(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && (text == "0" || !strings.HasPrefix(text, "0")) {
		return n
	}
	switch text {
	case "True", "true":
		return true
	case "False", "false":
		return false
	}
	return text
}

// unfold makes the names that a pattern such as web[01:10].example.com or db-[a:c] means.
func unfold(pattern string) ([]string, error) {
	start := strings.IndexByte(pattern, '[')
	end := strings.IndexByte(pattern, ']')
	if start < 0 || end < start || !strings.Contains(pattern[start:end], ":") {
		return []string{pattern}, nil
	}
	bounds := strings.Split(pattern[start+1:end], ":")
	step := 1
	if len(bounds) == 3 {
		var err error
		if step, err = strconv.Atoi(bounds[2]); err != nil || step < 1 {
			return nil, fmt.Errorf("%q: the step is a number from 1", pattern)
		}
	}
	var list []string
	add := func(text string) error {
		rest, err := unfold(pattern[end+1:])
		if err != nil {
			return err
		}
		for _, r := range rest {
			list = append(list, pattern[:start]+text+r)
		}
		if len(list) > maxHosts {
			return fmt.Errorf("%q means more than %d hosts", pattern, maxHosts)
		}
		return nil
	}
	from, err := strconv.Atoi(bounds[0])
	to, err2 := strconv.Atoi(bounds[1])
	switch {
	case err == nil && err2 == nil && from <= to && to-from <= maxHosts:
		width := 0
		if strings.HasPrefix(bounds[0], "0") {
			width = len(bounds[0])
		}
		for i := from; i <= to; i += step {
			if err := add(fmt.Sprintf("%0*d", width, i)); err != nil {
				return nil, err
			}
		}
	case len(bounds[0]) == 1 && len(bounds[1]) == 1 && err != nil && err2 != nil && bounds[0] <= bounds[1]:
		for c := int(bounds[0][0]); c <= int(bounds[1][0]); c += step {
			if err := add(string(rune(c))); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("%q is no range of hosts, as web[01:10] or db-[a:c]", pattern)
	}
	return list, nil
}
