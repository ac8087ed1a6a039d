package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
)

// chainsDeadline limits one call of an iptables program.
const chainsDeadline = time.Minute

// listChains returns the iptables chains whose names start with one of the prefixes. removal is input for
// iptables-restore that removes these chains and the rules that jump to them. A machine without iptables has none.
func listChains(ctx context.Context, program string, prefixes []string) (found []string, removal []byte, err error) {
	if _, err := exec.LookPath(program + "-save"); err != nil || len(prefixes) == 0 {
		return nil, nil, nil
	}
	ours := func(name string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	var text bytes.Buffer
	for _, table := range []string{"filter", "nat"} {
		saved, err := iptables(ctx, nil, program+"-save", "-t", table)
		if err != nil {
			return nil, nil, err
		}
		var names, leading []string
		for line := range strings.Lines(string(saved)) {
			words := strings.Fields(line)
			switch {
			case len(words) > 0 && strings.HasPrefix(words[0], ":") && ours(words[0][1:]):
				names = append(names, words[0][1:])
			case len(words) > 3 && words[0] == "-A" && !ours(words[1]) && words[len(words)-2] == "-j" &&
				ours(words[len(words)-1]):
				leading = append(leading, "-D "+strings.TrimSpace(strings.TrimPrefix(line, "-A ")))
			}
		}
		if len(names) == 0 {
			continue
		}
		found = append(found, names...)
		fmt.Fprintf(&text, "*%s\n:%s - [0:0]\n", table, strings.Join(names, " - [0:0]\n:"))
		for _, rule := range leading {
			text.WriteString(rule + "\n")
		}
		fmt.Fprintf(&text, "-X %s\nCOMMIT\n", strings.Join(names, "\n-X "))
	}
	return found, text.Bytes(), nil
}

// iptablesPrograms returns the iptables programs that may have chains, with their families. It includes the legacy
// programs only if the kernel already has legacy tables, because running a legacy program creates these tables.
func iptablesPrograms() map[string]nftables.TableFamily {
	all := map[string]nftables.TableFamily{"iptables": nftables.TableFamilyIPv4, "ip6tables": nftables.TableFamilyIPv6}
	for program, names := range map[string]string{"iptables": "/proc/net/ip_tables_names",
		"ip6tables": "/proc/net/ip6_tables_names"} {
		if text, err := os.ReadFile(names); err == nil && slices.Contains(strings.Fields(string(text)), "filter") {
			all[program+"-legacy"] = all[program]
		}
	}
	return all
}

// clearChains removes chains, and the tables that existed only for them.
func clearChains(ctx context.Context, prefixes []string) error {
	for program, family := range iptablesPrograms() {
		found, removal, err := listChains(ctx, program, prefixes)
		if err == nil && len(found) > 0 {
			if _, err = iptables(ctx, removal, program+"-restore", "-w", "5", "--noflush"); err == nil {
				err = clearEmpty(family)
			}
		}
		if err != nil {
			return fmt.Errorf("remove chains of iptables: %w", err)
		}
	}
	return nil
}

// clearEmpty removes the nftables tables of iptables that have no effect: those without rules whose only chains are the
// built-in ones with policy accept. iptables creates them again when it needs them.
func clearEmpty(family nftables.TableFamily) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reach nftables: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(family)
	if err != nil {
		return fmt.Errorf("list nftables' tables: %w", err)
	}
	empty := map[string]*nftables.Table{}
	for _, t := range tables {
		if t.Name == "filter" || t.Name == "nat" {
			empty[t.Name] = t
		}
	}
	list, err := conn.ListChainsOfTableFamily(family)
	if err != nil {
		return fmt.Errorf("list nftables' chains: %w", err)
	}
	for _, c := range list {
		if empty[c.Table.Name] == nil {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return fmt.Errorf("list the rules of %s %s: %w", c.Table.Name, c.Name, err)
		}
		if len(rules) > 0 || c.Hooknum == nil || c.Policy == nil || *c.Policy != nftables.ChainPolicyAccept {
			delete(empty, c.Table.Name)
		}
	}
	for _, t := range empty {
		conn.DelTable(t)
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("remove tables of iptables: %w", err)
	}
	return nil
}

func iptables(ctx context.Context, input []byte, program string, args ...string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, chainsDeadline)
	defer stop()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(input), time.Second
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(complaint.String()))
	}
	return out, nil
}
