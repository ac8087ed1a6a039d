// Package iptables puts chains of rules into the kernel by the machine's own iptables programs, of either kind. Only
// chains that have changed are written, those of a table in one transaction. What the rules mean is proxy/rules'.
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

// deadline bounds one call of a program: tens of thousands of services take it some seconds.
const deadline = 2 * time.Minute

// Tables is what the kernel has of a family's chains. It is not for several goroutines at once.
type Tables struct {
	known bool
	// spelled maps chains to how this machine's iptables prints them, where it uses other words than those it was
	// given.
	spelled map[rules.Chain]spelling
}

type spelling struct{ ours, theirs string }

// tables are those that have chains of ours, in the order in which they change: filter refuses packets before nat leads
// them anywhere.
var tables = []string{"filter", "nat"}

func program(f nft.Family, name string) string {
	if f == nft.IPv6 {
		return "ip6tables" + name
	}
	return "iptables" + name
}

// Missing are the programs of a family that the machine lacks.
func Missing(f nft.Family) (names []string) {
	for _, name := range []string{"", "-save", "-restore"} {
		if _, err := exec.LookPath(program(f, name)); err != nil {
			names = append(names, program(f, name))
		}
	}
	return names
}

// Older reports whether a family's programs are those of before nftables, whose rules stand in tables of their own.
func Older(f nft.Family) (bool, error) {
	out, err := call(nil, program(f, ""), "-V")
	return err == nil && !bytes.Contains(out, []byte("nf_tables")), err
}

func call(input []byte, name string, args ...string) ([]byte, error) {
	ctx, stop := context.WithTimeout(context.Background(), deadline)
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

// Apply makes the kernel's chains what they should be. The first time, and after a failure, what there is is read and
// compared; afterwards only what has changed since is written. It returns in how many transactions.
func (t *Tables) Apply(c *rules.Chains) (transactions int, err error) {
	if !t.known {
		return t.whole(c)
	}
	changed := c.Changed()
	if len(changed) == 0 {
		return 0, nil
	}
	t.known = false
	if transactions, err = restore(c.Family, changed, nil); err != nil {
		return transactions, err
	}
	c.Done()
	t.known = true
	return transactions, nil
}

// whole compares everything, writes what differs, and learns how this machine's iptables spells what it was given.
func (t *Tables) whole(c *rules.Chains) (transactions int, err error) {
	found, err := read(c.Family)
	if err != nil {
		return 0, err
	}
	want := c.All()
	changed, jumps := t.differing(want, found)
	if len(changed)+len(jumps) > 0 {
		if transactions, err = restoreInPieces(c.Family, changed, jumps); err != nil {
			return transactions, err
		}
		if found, err = read(c.Family); err != nil {
			return transactions, err
		}
		if t.spelled == nil {
			t.spelled = map[rules.Chain]spelling{}
		}
		for chain, lines := range want {
			if has, there := found[chain]; there && !slices.Equal(has, lines) && len(has) == len(lines) {
				t.spelled[chain] = spelling{strings.Join(lines, "\n"), strings.Join(has, "\n")}
			}
		}
		if changed, jumps := t.differing(want, found); len(changed)+len(jumps) > 0 {
			return transactions, fmt.Errorf(
				"%d chains and %d jumps are not as they were written: somebody else changes them",
				len(changed),
				len(jumps),
			)
		}
	}
	c.Done()
	t.known = true
	return transactions, nil
}

// differing returns the chains that are not as they should be, nil for those that should not be, and the jumps that are
// not there.
func (t *Tables) differing(want, found map[rules.Chain][]string) (map[rules.Chain][]string, []rules.Jump) {
	changed := map[rules.Chain][]string{}
	for chain, lines := range want {
		has, there := found[chain]
		if there && slices.Equal(has, lines) {
			continue
		}
		if s, known := t.spelled[chain]; there && known && s.ours == strings.Join(lines, "\n") &&
			s.theirs == strings.Join(has, "\n") {
			continue
		}
		changed[chain] = lines
	}
	for chain := range found {
		if _, wanted := want[chain]; !wanted && rules.Proxied(chain) {
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

// read returns all chains of our tables with their rules.
func read(f nft.Family) (map[rules.Chain][]string, error) {
	found := map[rules.Chain][]string{}
	for _, table := range tables {
		out, err := call(nil, program(f, "-save"), "-t", table)
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

// piece is how many chains are written at a time when there are many: with all of them at once the time that it takes
// grows by the square.
const piece = 2000

// restoreInPieces writes many chains, those first that others lead to, and last what is not service ports' own with
// what goes.
func restoreInPieces(f nft.Family, changed map[rules.Chain][]string, jumps []rules.Jump) (transactions int, err error) {
	rest := maps.Clone(changed)
	for _, kinds := range [][]string{{"KUBE-MARK-"}, {"KUBE-SEP-"}, {"KUBE-SVC-", "KUBE-SVL-"}, {"KUBE-EXT-"},
		{"KUBE-FW-"}} {
		if len(rest) <= piece {
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
			if len(some) == piece {
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

// restore writes chains, nil for those that go, and puts jumps before what stands where they belong. It returns in how
// many transactions; one that may change nothing, of empty chains that may have been empty, is not counted: who counts
// takes another's for ours when there were fewer.
func restore(f nft.Family, changed map[rules.Chain][]string, jumps []rules.Jump) (transactions int, err error) {
	var text bytes.Buffer
	for _, table := range tables {
		names := slices.SortedFunc(
			maps.Keys(changed),
			func(a, b rules.Chain) int { return strings.Compare(a.Name, b.Name) },
		)
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
	_, err = call(text.Bytes(), program(f, "-restore"), "-w", "5", "--noflush")
	return transactions, err
}

// Intact reports whether the kernel still has what was put there: with deep everything is compared, else whether a jump
// still stands in each of the kernel's own chains, which tells of a table that was flushed.
func (t *Tables) Intact(c *rules.Chains, deep bool) (bool, error) {
	if !t.known {
		return true, nil // the next Apply compares
	}
	if deep {
		found, err := read(c.Family)
		if err != nil {
			return false, err
		}
		changed, jumps := t.differing(c.All(), found)
		return len(changed)+len(jumps) == 0, nil
	}
	seen := map[rules.Chain]bool{}
	for _, j := range rules.Jumps {
		if seen[j.From] {
			continue // a flush takes all of a chain's
		}
		seen[j.From] = true
		if there, err := has(c.Family, j.From, j.Rule); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// has reports whether a chain has a rule.
func has(f nft.Family, c rules.Chain, rule string) (bool, error) {
	_, err := call(nil, program(f, ""), append([]string{"-w", "5", "-t", c.Table, "-C", c.Name}, words(rule)...)...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 2):
		// no such rule; a chain that it names is not there
		return false, nil
	}
	return false, fmt.Errorf("look for a rule: %w", err)
}

// words splits a rule as a shell does, which knows quotes.
func words(rule string) (list []string) {
	for i, part := range strings.Split(rule, `"`) {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

// Forget has the next Apply compare everything.
func (t *Tables) Forget() { t.known = false }

// Known reports whether the kernel had what it should when that was last applied.
func (t *Tables) Known() bool { return t.known }

// Found reports whether a proxy of services has put chains there. A machine without iptables has none.
func Found(f nft.Family) (bool, error) {
	if len(Missing(f)) > 0 {
		return false, nil
	}
	found, err := read(f)
	_, there := found[rules.Entrance]
	return there, err
}

// Remove takes away what a proxy of services has put there, and leaves what is others'. A machine without iptables has
// nothing of it.
func Remove(f nft.Family) error {
	if len(Missing(f)) > 0 {
		return nil
	}
	found, err := read(f)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, table := range tables {
		var chains []string
		for chain := range found {
			if chain.Table == table && rules.Proxied(chain) {
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
	_, err = call(text.Bytes(), program(f, "-restore"), "-w", "5", "--noflush")
	return err
}
