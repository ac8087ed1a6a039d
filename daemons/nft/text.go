package nft

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// text returns nft's notation of an element.
func (e Element) text(s Set) string {
	words := make([]string, len(s.Key))
	for i, f := range s.Key {
		switch f {
		case Source:
			words[i] = e.Key.Source.String()
		case Destination:
			words[i] = e.Key.Destination.String()
		case Protocol:
			words[i] = protocolName(e.Key.Protocol)
		case Port:
			words[i] = fmt.Sprint(e.Key.Port)
		case Index:
			words[i] = fmt.Sprint(e.Key.Index)
		}
	}
	key := strings.Join(words, " . ")
	switch s.Values {
	case Verdicts:
		return key + " : " + e.Value.Verdict.String()
	case Numbers:
		return key + " : " + fmt.Sprint(e.Value.Number)
	case Endpoints:
		return fmt.Sprintf("%s : %s . %d", key, e.Value.To.Addr(), e.Value.To.Port())
	}
	return key
}

// Compare orders keys. Within a set, keys are ordered by address first.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.Source.compare(o.Source), k.Destination.compare(o.Destination), cmp.Compare(k.Protocol, o.Protocol),
		cmp.Compare(k.Port, o.Port), cmp.Compare(k.Index, o.Index))
}

// Text renders a table in a fixed order.
func (t *Table) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", t.Family, t.Name)
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		s := t.sets[name]
		kind := "set"
		if s.Values != NoValues {
			kind = "map"
		}
		fmt.Fprintf(&b, "  %s %s {", kind, name)
		if s.Timeout > 0 {
			fmt.Fprintf(&b, " timeout %ds", s.Timeout)
		}
		b.WriteString("\n")
		for _, e := range slices.SortedFunc(maps.Keys(t.elements[name]), Key.Compare) {
			fmt.Fprintf(&b, "    %s\n", Element{e, t.elements[name][e].value}.text(s))
		}
		b.WriteString("  }\n")
	}
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		c := t.chains[name]
		fmt.Fprintf(&b, "  chain %s {", name)
		if c.Hook != nil {
			fmt.Fprintf(&b, " type %s hook %s priority %d", c.Hook.Type, c.Hook.Name, c.Hook.Priority)
		}
		b.WriteString("\n")
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "    %s\n", r.text(t.Family))
		}
		b.WriteString("  }\n")
	}
	b.WriteString("}\n")
	return b.String()
}
