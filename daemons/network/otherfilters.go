package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/nftables"

	"clusterctl/daemons/nft/kernel"
)

// acceptChain is an iptables chain that accepts packets of pods. The last rule of the chain FORWARD jumps to it, so
// that it takes precedence over the policy DROP, which Docker and ufw set.
const acceptChain = "CLUSTERCTL-FORWARD"

// proxyMark is the mark of packets that the service proxy forwards with the machine's source address.
const proxyMark = "0x4000/0x4000"

// programTimeout limits one call of an iptables program.
const programTimeout = 20 * time.Second

// otherFilters makes packet filters of other programs accept packets of pods, and finds their rules that drop such
// packets: an accept in this daemon's tables does not override these rules. Only found is safe for concurrent use.
type otherFilters struct {
	clusters   []netip.Prefix
	call       func(input []byte, program string, args ...string) ([]byte, error) // runs a program; nil is the real one
	proc       string                                                             // default /proc
	generation uint32
	hasChecked bool

	mu       sync.Mutex
	problems []string
}

// familyProtocol holds the names that iptables and the kernel use for an address family.
type familyProtocol struct {
	// program is the name of the iptables program. names is the file below /proc/net that lists the tables of legacy
	// iptables.
	program, names string
	family         nftables.TableFamily
	is4            bool
}

var protocols = []familyProtocol{
	{"iptables", "net/ip_tables_names", nftables.TableFamilyIPv4, true},
	{"ip6tables", "net/ip6_tables_names", nftables.TableFamilyIPv6, false},
}

// ensureAccepted adds accept rules for packets of pods where possible, and records the rules that still drop them. It
// does nothing if the kernel's rules have not changed since the last call, unless deep is set.
func (f *otherFilters) ensureAccepted(deep bool) error {
	generation, err := kernel.Generation()
	if err != nil {
		return fmt.Errorf("read others' packet rules: %w", err)
	}
	if f.hasChecked && !deep && generation == f.generation {
		return nil
	}
	var problems []string
	var failures []error
	for _, p := range protocols {
		if !slices.ContainsFunc(f.clusters, func(c netip.Prefix) bool { return c.Addr().Is4() == p.is4 }) {
			continue
		}
		found, err := f.checkLegacy(p)
		problems, failures = append(problems, found...), append(failures, err)
	}
	found, err := f.checkNFTables()
	problems, failures = append(problems, found...), append(failures, err)
	slices.Sort(problems)
	f.mu.Lock()
	f.problems = slices.Compact(problems)
	f.mu.Unlock()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	f.generation, f.hasChecked = generation, true
	return nil
}

// foundProblems returns descriptions of the rules that drop packets of pods.
func (f *otherFilters) foundProblems() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.problems)
}

// checkLegacy checks the tables of legacy iptables, if the kernel has any.
func (f *otherFilters) checkLegacy(p familyProtocol) ([]string, error) {
	proc := f.proc
	if proc == "" {
		proc = "/proc"
	}
	names, err := os.ReadFile(proc + "/" + p.names)
	if err != nil || !slices.Contains(strings.Fields(string(names)), "filter") {
		return nil, nil // the kernel has no legacy iptables, or no filter table in it
	}
	for _, suffix := range []string{"-legacy", ""} {
		version, err := f.runProgram(nil, p.program+suffix, "-V")
		if err == nil && !bytes.Contains(version, []byte("nf_tables")) {
			return f.acceptIPTables(p, p.program, suffix, "the older tables of "+p.program)
		}
	}
	return []string{fmt.Sprintf("the machine has %[1]s-legacy rules but no program %[1]s-legacy: "+
		"install it, or remove the rules by restarting the machine", p.program)}, nil
}

// acceptIPTables adds acceptChain to one variant of iptables if the policy of its chain FORWARD is DROP. It returns the
// rules that drop packets of pods before the packets reach acceptChain.
func (f *otherFilters) acceptIPTables(p familyProtocol, program, suffix, called string) ([]string, error) {
	name := program + suffix
	listed, err := f.runProgram(nil, name, "-w", "5", "-S")
	if err != nil {
		return nil, fmt.Errorf("read the rules of %s: %w", name, err)
	}
	problems := droppingRules(listed, f.clusters, p.is4, called)
	lines := strings.Split(string(listed), "\n")
	drops := slices.Contains(lines, "-P FORWARD DROP")
	jumps := slices.Contains(lines, "-A FORWARD -j "+acceptChain)
	if !drops {
		return problems, nil
	}
	if err := f.fillAcceptChain(p, program, suffix); err != nil {
		return problems, err
	}
	if !jumps {
		if _, err := f.runProgram(nil, name, "-w", "5", "-A", "FORWARD", "-j", acceptChain); err != nil {
			return problems, fmt.Errorf("accept packets of pods by %s: %w", name, err)
		}
	}
	return problems, nil
}

// fillAcceptChain writes the rules of acceptChain unless they already exist.
func (f *otherFilters) fillAcceptChain(p familyProtocol, program, suffix string) error {
	var rules []string
	for _, c := range f.clusters {
		if c.Addr().Is4() == p.is4 {
			rules = append(rules, "-A "+acceptChain+" -s "+c.String()+" -j ACCEPT",
				"-A "+acceptChain+" -d "+c.String()+" -j ACCEPT")
		}
	}
	rules = append(rules, "-A "+acceptChain+" -m mark --mark "+proxyMark+" -j ACCEPT",
		"-A "+acceptChain+" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	// If the chain does not exist, the command fails and the chain has no rules.
	if listed, err := f.runProgram(nil, program+suffix, "-w", "5", "-S", acceptChain); err == nil {
		var found []string
		for line := range strings.Lines(string(listed)) {
			if strings.HasPrefix(line, "-A ") {
				found = append(found, strings.TrimSpace(line))
			}
		}
		if slices.Equal(found, rules) {
			return nil
		}
	}
	text := fmt.Sprintf("*filter\n:%s - [0:0]\n%s\nCOMMIT\n", acceptChain, strings.Join(rules, "\n"))
	if _, err := f.runProgram([]byte(text), program+suffix+"-restore", "-w", "5", "--noflush"); err != nil {
		return fmt.Errorf("write the chain %s of %s: %w", acceptChain, program+suffix, err)
	}
	return nil
}

func (f *otherFilters) runProgram(input []byte, program string, args ...string) ([]byte, error) {
	if f.call != nil {
		return f.call(input, program, args...)
	}
	ctx, stop := context.WithTimeout(context.Background(), programTimeout)
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
