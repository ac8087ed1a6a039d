package network

import (
	"fmt"
	"net/netip"
	"strings"

	"clusterctl/daemons/network/link"
)

// filterRule holds the parts of a rule in the iptables table filter that decide about packets of pods.
type filterRule struct {
	text, chain     string
	isUnconditional bool // the rule matches all packets
	source          netip.Prefix
	destination     netip.Prefix
	in, out         bool   // the input or output interface is a pod's
	target          string // a verdict or a chain
	isGoto          bool   // the rule jumps with -g: the target chain does not return to this one
}

// readRule parses a line of iptables -S. It returns false if the line is not a rule.
func readRule(line string) (filterRule, bool) {
	words := ruleWords(line)
	if len(words) < 2 || words[0] != "-A" {
		return filterRule{}, false
	}
	r := filterRule{text: strings.TrimSpace(line), chain: words[1], isUnconditional: true}
	not := false
	value := func(i int) string {
		if i+1 < len(words) {
			return words[i+1]
		}
		return ""
	}
	pods := func(name string) bool { return !not && strings.HasPrefix(name, link.Prefix) }
	for i := 2; i < len(words); i++ {
		switch words[i] {
		case "!":
			not = true
			continue
		case "-m":
			r.isUnconditional = r.isUnconditional && value(i) == "comment"
			i++
		case "--comment":
			i++
		case "-s", "-d":
			r.isUnconditional = false
			if p, err := netip.ParsePrefix(value(i)); err == nil && !not && words[i] == "-s" {
				r.source = p.Masked()
			} else if err == nil && !not {
				r.destination = p.Masked()
			}
			i++
		case "-i":
			r.isUnconditional, r.in = false, pods(value(i))
			i++
		case "-o":
			r.isUnconditional, r.out = false, pods(value(i))
			i++
		case "-j", "-g":
			r.target, r.isGoto = value(i), words[i] == "-g"
			return r, true // the rest are options of the target
		default:
			r.isUnconditional = false
		}
		not = false
	}
	return r, true
}

// ruleWords splits a line of iptables -S into words. Texts with spaces are quoted.
func ruleWords(line string) (words []string) {
	var word strings.Builder
	quoted, escaped, started := false, false, false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quoted:
			escaped = true
		case c == '"':
			quoted, started = !quoted, true
		case (c == ' ' || c == '\n' || c == '\t') && !quoted:
			if started {
				words = append(words, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteRune(c)
			started = true
		}
	}
	if started {
		words = append(words, word.String())
	}
	return words
}

// filterWalk follows packets of pods through iptables chains. An accept of some of these packets counts as an accept of
// all, so that only certain drops are reported.
type filterWalk struct {
	cluster   netip.Prefix
	rules     map[string][]filterRule
	rulesLeft int // rules that may still be read

	from, to bool // packets from pods, and to pods, are accepted
	dropped  string
}

// walkChain follows packets through a chain. from and to report whether the rules that lead to the chain match packets
// from pods and to pods. every reports whether all packets reach the chain.
func (w *filterWalk) walkChain(name string, from, to, every bool, depth int) {
	for _, r := range w.rules[name] {
		if w.rulesLeft--; w.rulesLeft < 0 || depth > maxJumps {
			w.from, w.to = true, true
		}
		if w.dropped != "" || w.from && w.to {
			return
		}
		all := every && r.isUnconditional
		from := from || r.in || r.source.Overlaps(w.cluster)
		to := to || r.out || r.destination.Overlaps(w.cluster)
		switch r.target {
		case "ACCEPT", acceptChain:
			w.from, w.to = w.from || from || all, w.to || to || all
		case "DROP", "REJECT":
			if all {
				w.dropped = r.text
			}
		case "RETURN":
			if all {
				return
			}
		default:
			if len(w.rules[r.target]) > 0 {
				w.walkChain(r.target, from, to, all, depth+1)
			}
			if r.isGoto && all {
				return
			}
		}
	}
}

// droppingRules returns the problems with rules, as listed by iptables -S, that drop packets of pods.
func droppingRules(listed []byte, clusters []netip.Prefix, is4 bool, called string) (problems []string) {
	rules := map[string][]filterRule{}
	for line := range strings.Lines(string(listed)) {
		if r, ok := readRule(line); ok {
			rules[r.chain] = append(rules[r.chain], r)
		}
	}
	for _, c := range clusters {
		if c.Addr().Is4() != is4 {
			continue
		}
		w := filterWalk{cluster: c, rules: rules, rulesLeft: maxRules}
		w.walkChain("FORWARD", false, false, true, 0)
		if w.dropped != "" {
			problems = append(problems, fmt.Sprintf("the rule %q of %s drops packets of pods: add the rules "+
				"\"-s %s -j ACCEPT\" and \"-d %s -j ACCEPT\" before it", w.dropped, called, c, c))
		}
	}
	return problems
}
