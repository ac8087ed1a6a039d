// Package iptables writes chains of rules to the kernel by the machine's iptables programs, of either variant. It only
// writes chains that have changed, in one transaction per table. Package proxy/rules defines the rules.
package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/rules"
)

// callTimeout limits one call of a program. With tens of thousands of services it takes several seconds.
const callTimeout = 2 * time.Minute

// Tables writes the chains of one family. It is not safe for concurrent use.
type Tables struct {
	applied bool
	// spellings maps chains to how this machine's iptables prints them, if that differs from what was written.
	spellings map[rules.Chain]ruleSpelling
}

type ruleSpelling struct{ written, printed string }

// tableNames are the tables with the proxy's chains, in the order of writing. filter comes first, so that packets are
// rejected before nat directs them anywhere.
var tableNames = []string{"filter", "nat"}

func programName(f nft.Family, name string) string {
	if f == nft.IPv6 {
		return "ip6tables" + name
	}
	return "iptables" + name
}

// Missing returns the iptables programs of a family that the machine lacks.
func Missing(f nft.Family) (names []string) {
	for _, name := range []string{"", "-save", "-restore"} {
		if _, err := exec.LookPath(programName(f, name)); err != nil {
			names = append(names, programName(f, name))
		}
	}
	return names
}

// IsLegacy reports whether a family's programs are legacy iptables, whose rules are in tables outside of nftables.
func IsLegacy(f nft.Family) (bool, error) {
	out, err := runProgram(nil, programName(f, ""), "-V")
	return err == nil && !bytes.Contains(out, []byte("nf_tables")), err
}

func runProgram(input []byte, name string, args ...string) ([]byte, error) {
	ctx, stop := context.WithTimeout(context.Background(), callTimeout)
	defer stop()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(input), time.Second
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		text, _, _ := strings.Cut(strings.TrimSpace(complaint.String()), "\n")
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return out, nil
}

// Apply updates the kernel's chains. The first time, and after an error, it reads the kernel's chains and compares.
// After that, it only writes what has changed. It returns the number of transactions.
func (t *Tables) Apply(c *rules.Chains) (transactions int, err error) {
	if !t.applied {
		return t.applyAll(c)
	}
	changed := c.Changed()
	if len(changed) == 0 {
		return 0, nil
	}
	t.applied = false
	if transactions, err = restore(c.Family, changed, nil); err != nil {
		return transactions, err
	}
	c.MarkApplied()
	t.applied = true
	return transactions, nil
}

// applyAll compares all chains, writes the differences, and records how this machine's iptables prints what was
// written.
func (t *Tables) applyAll(c *rules.Chains) (transactions int, err error) {
	found, err := readChains(c.Family)
	if err != nil {
		return 0, err
	}
	want := c.All()
	changed, jumps := t.differences(want, found)
	if len(changed)+len(jumps) > 0 {
		if transactions, err = restoreInPieces(c.Family, changed, jumps); err != nil {
			return transactions, err
		}
		if found, err = readChains(c.Family); err != nil {
			return transactions, err
		}
		if t.spellings == nil {
			t.spellings = map[rules.Chain]ruleSpelling{}
		}
		for chain, lines := range want {
			if existing, ok := found[chain]; ok && !slices.Equal(existing, lines) && len(existing) == len(lines) {
				t.spellings[chain] = ruleSpelling{strings.Join(lines, "\n"), strings.Join(existing, "\n")}
			}
		}
		if changed, jumps := t.differences(want, found); len(changed)+len(jumps) > 0 {
			return transactions, fmt.Errorf(
				"%d chains and %d jumps differ from what was written: another program changes them", len(changed),
				len(jumps))
		}
	}
	c.MarkApplied()
	t.applied = true
	return transactions, nil
}

// differences returns the chains that differ, with nil for those to remove, and the missing jumps.
func (t *Tables) differences(want, found map[rules.Chain][]string) (map[rules.Chain][]string, []rules.Jump) {
	changed := map[rules.Chain][]string{}
	for chain, lines := range want {
		existing, ok := found[chain]
		if ok && slices.Equal(existing, lines) {
			continue
		}
		if s, exists := t.spellings[chain]; ok && exists && s.written == strings.Join(lines, "\n") &&
			s.printed == strings.Join(existing, "\n") {
			continue
		}
		changed[chain] = lines
	}
	for chain := range found {
		if _, wanted := want[chain]; !wanted && rules.IsProxyChain(chain) {
			changed[chain] = nil
		}
	}
	var jumps []rules.Jump
	for _, j := range rules.Jumps {
		if !slices.Contains(found[j.From], j.Rule) {
			jumps = append(jumps, j)
		}
	}
	return changed, jumps
}

// readChains returns all chains of the tables with their rules.
func readChains(f nft.Family) (map[rules.Chain][]string, error) {
	found := map[rules.Chain][]string{}
	for _, table := range tableNames {
		out, err := runProgram(nil, programName(f, "-save"), "-t", table)
		if err != nil {
			return nil, fmt.Errorf("read the rules: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			line = strings.TrimSpace(line)
			if name, ok := strings.CutPrefix(line, ":"); ok {
				name, _, _ = strings.Cut(name, " ")
				found[rules.Chain{Table: table, Name: name}] = []string{}
			} else if rest, ok := strings.CutPrefix(line, "-A "); ok {
				name, rule, _ := strings.Cut(rest, " ")
				chain := rules.Chain{Table: table, Name: name}
				found[chain] = append(found[chain], rule)
			}
		}
	}
	return found, nil
}

// maxChains limits how many chains are written at once, because the time grows with the square of the number.
const maxChains = 2000

// restoreInPieces writes many chains in several transactions. A chain is written before the chains that jump to it. The
// chains that belong to no service port, and the removals, come last.
func restoreInPieces(f nft.Family, changed map[rules.Chain][]string, jumps []rules.Jump) (transactions int, err error) {
	rest := maps.Clone(changed)
	for _, kinds := range [][]string{{"KUBE-MARK-"}, {"KUBE-SEP-"}, {"KUBE-SVC-", "KUBE-SVL-"}, {"KUBE-EXT-"},
		{"KUBE-FW-"}} {
		if len(rest) <= maxChains {
			break
		}
		some := map[rules.Chain][]string{}
		flush := func() error {
			if len(some) == 0 {
				return nil
			}
			n, err := restore(f, some, nil)
			transactions += n
			clear(some)
			return err
		}
		for c, lines := range changed {
			if lines == nil ||
				!slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(c.Name, k) }) {
				continue
			}
			some[c] = lines
			delete(rest, c)
			if len(some) == maxChains {
				if err := flush(); err != nil {
					return transactions, err
				}
			}
		}
		if err := flush(); err != nil {
			return transactions, err
		}
	}
	n, err := restore(f, rest, jumps)
	return transactions + n, err
}

// restore writes chains, removes those that are nil, and inserts jumps at the start of their chains. It returns the
// number of transactions. It does not count one that might change nothing, because it flushes chains that may be empty:
// an overestimate would hide another program's transaction.
func restore(f nft.Family, changed map[rules.Chain][]string, jumps []rules.Jump) (transactions int, err error) {
	var text bytes.Buffer
	for _, table := range tableNames {
		names := slices.SortedFunc(maps.Keys(changed),
			func(a, b rules.Chain) int { return strings.Compare(a.Name, b.Name) })
		names = slices.DeleteFunc(names, func(c rules.Chain) bool { return c.Table != table })
		ours := slices.DeleteFunc(slices.Clone(jumps), func(j rules.Jump) bool { return j.From.Table != table })
		if len(names)+len(ours) == 0 {
			continue
		}
		fmt.Fprintf(&text, "*%s\n", table)
		changes := len(ours) > 0
		for _, c := range names {
			fmt.Fprintf(&text, ":%s - [0:0]\n", c.Name)
		}
		for _, c := range names {
			changes = changes || changed[c] == nil || len(changed[c]) > 0
			for _, rule := range changed[c] {
				fmt.Fprintf(&text, "-A %s %s\n", c.Name, rule)
			}
		}
		for _, c := range names {
			if changed[c] == nil {
				fmt.Fprintf(&text, "-X %s\n", c.Name)
			}
		}
		for _, j := range ours {
			fmt.Fprintf(&text, "-I %s 1 %s\n", j.From.Name, j.Rule)
		}
		text.WriteString("COMMIT\n")
		if changes {
			transactions++
		}
	}
	_, err = runProgram(text.Bytes(), programName(f, "-restore"), "-w", "5", "--noflush")
	return transactions, err
}

// IsIntact reports whether the kernel still has the chains. With deep, it compares everything. Otherwise it checks for
// a jump in each built-in chain, which detects a flushed table.
func (t *Tables) IsIntact(c *rules.Chains, deep bool) (bool, error) {
	if !t.applied {
		return true, nil // the next Apply compares
	}
	if deep {
		found, err := readChains(c.Family)
		if err != nil {
			return false, err
		}
		changed, jumps := t.differences(c.All(), found)
		return len(changed)+len(jumps) == 0, nil
	}
	seen := map[rules.Chain]bool{}
	for _, j := range rules.Jumps {
		if seen[j.From] {
			continue // a flush removes all rules of a chain, so one check is enough
		}
		seen[j.From] = true
		if exists, err := hasRule(c.Family, j.From, j.Rule); err != nil || !exists {
			return false, err
		}
	}
	return true, nil
}

// hasRule reports whether a chain has a rule.
func hasRule(f nft.Family, c rules.Chain, rule string) (bool, error) {
	_, err := runProgram(nil, programName(f, ""),
		append([]string{"-w", "5", "-t", c.Table, "-C", c.Name}, splitWords(rule)...)...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 2):
		// the rule does not exist, or a chain in it does not
		return false, nil
	}
	return false, fmt.Errorf("look for a rule: %w", err)
}

// splitWords splits a rule like a shell, with double quotes.
func splitWords(rule string) (list []string) {
	for i, part := range strings.Split(rule, `"`) {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

// Invalidate makes the next Apply compare everything.
func (t *Tables) Invalidate() { t.applied = false }

// IsApplied reports whether the last Apply succeeded and Invalidate was not called since.
func (t *Tables) IsApplied() bool { return t.applied }

// HasChains reports whether the kernel has chains of a service proxy. It returns false on a machine without iptables.
func HasChains(f nft.Family) (bool, error) {
	if len(Missing(f)) > 0 {
		return false, nil
	}
	found, err := readChains(f)
	_, ok := found[rules.EntryChain]
	return ok, err
}

// RemoveChains removes the chains of a service proxy and leaves all others. It does nothing on a machine without
// iptables.
func RemoveChains(f nft.Family) error {
	if len(Missing(f)) > 0 {
		return nil
	}
	found, err := readChains(f)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, table := range tableNames {
		var chains []string
		for chain := range found {
			if chain.Table == table && rules.IsProxyChain(chain) {
				chains = append(chains, chain.Name)
			}
		}
		if len(chains) == 0 {
			continue
		}
		slices.Sort(chains)
		fmt.Fprintf(&text, "*%s\n", table)
		for _, name := range chains {
			fmt.Fprintf(&text, ":%s - [0:0]\n", name)
		}
		for _, j := range rules.Jumps {
			if j.From.Table == table && slices.Contains(found[j.From], j.Rule) {
				fmt.Fprintf(&text, "-D %s %s\n", j.From.Name, j.Rule)
			}
		}
		for _, name := range chains {
			fmt.Fprintf(&text, "-X %s\n", name)
		}
		text.WriteString("COMMIT\n")
	}
	if text.Len() == 0 {
		return nil
	}
	_, err = runProgram(text.Bytes(), programName(f, "-restore"), "-w", "5", "--noflush")
	return err
}
