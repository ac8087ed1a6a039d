package network

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// runCommands runs commands in the machine's network namespace, one per line.
func runCommands(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		words := strings.Fields(c)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// loadRules loads nft rules.
func loadRules(t *testing.T, rules string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	t.Cleanup(func() {
		for table := range strings.Lines(rules) {
			if words := strings.Fields(table); len(words) > 2 && words[0] == "table" {
				_ = exec.Command("nft", "delete", "table", words[1], words[2]).Run()
			}
		}
	})
}

var podNetworks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/48")}

// flushAtEnd removes what tests have changed in iptables.
func flushAtEnd(t *testing.T) {
	t.Helper()
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		runCommands(t, program+" -P FORWARD ACCEPT", program+" -F FORWARD")
		_ = exec.Command(program, "-F", acceptChain).Run()
		_ = exec.Command(program, "-X", acceptChain).Run()
	}
	for _, family := range []string{"ip", "ip6"} {
		_ = exec.Command("nft", "delete", "table", family, "filter").Run()
	}
}

// Docker sets the policy of the chain FORWARD to DROP, and puts its own rules before the existing ones.
func TestPodPacketsPassTheForwardPolicyOfDocker(t *testing.T) {
	t.Cleanup(func() { flushAtEnd(t) })
	m := newTestNode(t)
	peer, pod := outsideAddress(false), m.podAddress(0, false)
	reaches := func() bool {
		c, err := m.beyond.dial(peer, pod, unix.IPPROTO_TCP, probedPorts[0], missingTolerance)
		if err != nil {
			return false
		}
		defer c.Close()
		return echo(c, missingTolerance)
	}
	f := &otherFilters{clusters: podNetworks}
	keep := func() {
		t.Helper()
		if err := f.ensureAccepted(false); err != nil {
			t.Fatal(err)
		}
	}
	if keep(); !reaches() {
		t.Fatal("the pod is not reached without any rules of others")
	}
	runCommands(t, "iptables-nft -N DOCKER-USER", "iptables-nft -A FORWARD -j "+
		"DOCKER-USER", "iptables-nft -P FORWARD DROP",
		"ip6tables-nft -P FORWARD DROP")
	if keep(); !reaches() {
		t.Error("the pod is not reached through a policy that drops")
	}
	if found := f.foundProblems(); len(found) > 0 {
		t.Errorf("still dropped: %q", found)
	}
	// An administrator's DROP stays in effect.
	runCommands(t, "iptables-nft -A DOCKER-USER -p tcp --dport "+fmt.Sprint(probedPorts[0])+" -j DROP")
	if keep(); reaches() {
		t.Error("a rule of the administrator is overruled")
	}
	runCommands(t, "iptables-nft -F DOCKER-USER")
	// Flushing the chain also removes our rule.
	runCommands(t, "iptables-nft -F FORWARD", "iptables-nft -A FORWARD -j DOCKER-USER")
	if keep(); !reaches() {
		t.Error("the accept does not come back after a flush")
	}
	runCommands(t, "iptables-nft -F "+acceptChain)
	if keep(); !reaches() {
		t.Error("the chain of accepts is not filled again")
	}
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		out, err := exec.Command(program, "-S", "FORWARD").Output()
		if err != nil || strings.Count(string(out), "-j "+acceptChain) != 1 {
			t.Errorf("%s has %s, %v", program, out, err)
		}
	}
	runCommands(t, "iptables-nft -F FORWARD", "iptables-nft -A FORWARD -m comment --comment all -j REJECT")
	keep()
	if found := f.foundProblems(); len(found) != 1 || !strings.Contains(found[0], "-j REJECT") ||
		!strings.Contains(found[0], "the chain ip filter FORWARD") {
		t.Errorf("of a rule for all packets before the accept it is said %q", found)
	}
}

// The rules are in the format of iptables -S.
func TestIPTablesRulesThatDropPodPacketsAreFound(t *testing.T) {
	for name, row := range map[string]struct {
		rules, dropping string // empty if no rule drops packets of pods
	}{
		"none":   {"", ""},
		"a drop": {"-A FORWARD -j DROP", "-A FORWARD -j DROP"},
		"a reject with a comment": {
			`-A FORWARD -m comment --comment "all \"of\" them" -j REJECT --reject-with icmp-admin-prohibited`,
			"-j REJECT"},
		"a drop for some":         {"-A FORWARD -s 192.0.2.1/32 -j DROP\n-A FORWARD ! -s 10.1.0.0/16 -j DROP", ""},
		"a drop after our accept": {"-A FORWARD -j " + acceptChain + "\n-A FORWARD -j DROP", ""},
		"a drop after accepts": {"-A FORWARD -s 10.1.0.0/16 -j ACCEPT\n-A FORWARD -d 10.0.0.0/8 -j ACCEPT\n" +
			"-A FORWARD -j REJECT", ""},
		"a drop after accepts of interfaces": {"-A FORWARD -i kpod+ -j ACCEPT\n" +
			"-A FORWARD -o kpod+ -j ACCEPT\n-A FORWARD -j DROP", ""},
		"a drop after an accept of one direction": {"-A FORWARD -s 10.1.0.0/16 -j ACCEPT\n-A FORWARD -j DROP",
			"-A FORWARD -j DROP"},
		"a drop after an accept of all others": {"-A FORWARD ! -s 10.1.0.0/16 -j ACCEPT\n" +
			"-A FORWARD ! -d 10.1.0.0/16 -j ACCEPT\n-A FORWARD -j DROP", "-A FORWARD -j DROP"},
		"a drop after an accept of states": {"-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n" +
			"-A FORWARD -j DROP", "-A FORWARD -j DROP"},
		"a drop in another chain": {"-A FORWARD -j ufw-reject-forward\n-A ufw-reject-forward -j REJECT",
			"-A ufw-reject-forward -j REJECT"},
		"a drop in another chain, for some": {"-A FORWARD -i eth0 -j other\n-A other -j DROP", ""},
		"an accept in another chain": {"-A FORWARD -s 10.1.0.0/16 -j trusted\n-A FORWARD -d 10.1.0.0/16 -g trusted\n" +
			"-A FORWARD -j REJECT\n-A trusted -j ACCEPT", ""},
		"a return before a drop":    {"-A FORWARD -j other\n-A other -j RETURN\n-A other -j DROP", ""},
		"a chain without an end":    {"-A FORWARD -j one\n-A one -g two\n-A two -g one", ""},
		"a chain that is not there": {"-A FORWARD -j none\n-A FORWARD -j DROP", "-A FORWARD -j DROP"},
	} {
		found := droppingRules([]byte("-P FORWARD ACCEPT\n"+row.rules+"\n"), podNetworks, true, "them")
		if row.dropping == "" && len(found) > 0 ||
			row.dropping != "" && (len(found) != 1 || !strings.Contains(found[0], row.dropping)) {
			t.Errorf("%s: %q", name, found)
		}
	}
}

func TestNFTablesRulesThatDropPodPacketsAreFound(t *testing.T) {
	const chain = "table %s others {\n chain through {\n type filter hook forward priority 0; policy %s;\n%s\n }\n}\n"
	const four, six = "10.1.0.0/16", "fd00:1::/48"
	for name, row := range map[string]struct {
		family, policy, rules string
		found                 []string // affected networks of pods
	}{
		"none":                   {"inet", "accept", "", nil},
		"a policy":               {"inet", "drop", "", []string{four, six}},
		"a policy of one family": {"ip", "drop", "", []string{four}},
		"a policy with other accepts": {"inet", "drop", "ip saddr 192.0.2.0/24 accept\nct state established accept",
			[]string{four, six}},
		"accepts for one direction": {"ip", "drop", "ip saddr 10.1.0.0/16 accept", []string{four}},
		"accepts for both": {"ip", "drop",
			"ip saddr 10.1.0.0/16 accept\nip daddr 10.1.0.0/16 counter accept", nil},
		"accepts by interfaces": {"inet", "drop", "iifname \"kpod*\" accept\noifname \"kpod*\" accept", nil},
		"accepts for all":       {"inet", "drop", "accept", nil},
		"a reject at the end": {"inet", "accept",
			"ct state established accept\nip saddr 192.0.2.1 drop\ncounter reject", []string{four, six}},
		"a drop after accepts": {"ip6", "accept",
			"ip6 saddr fd00:1::/48 accept\nip6 daddr fd00:1::/48 accept\ndrop", nil},
		"a drop before accepts": {"ip6", "accept",
			"drop\nip6 saddr fd00:1::/48 accept\nip6 daddr fd00:1::/48 accept", []string{six}},
		"drops for some": {"inet", "accept", "tcp dport 22 drop", nil},
		"accepts for a larger network": {"ip", "drop",
			"ip saddr 10.0.0.0/8 accept\nip daddr 10.0.0.0/12 accept", nil},
		"accepts for the machine's own pods": {"ip", "drop",
			"ip saddr 10.1.3.0/24 accept\nip daddr 10.1.3.0/24 accept", nil},
		"accepts for another network": {"ip", "drop",
			"ip saddr 10.2.0.0/16 accept\nip daddr 10.0.0.0/16 accept", []string{four}},
		"accepts for a set": {"ip", "drop",
			"ip saddr {10.1.0.0/16, 192.0.2.0/24} accept\nip daddr {10.1.0.0/16, 192.0.2.0/24} accept", nil},
		"accepts for a state": {"ip", "drop", "ct state {established, related} accept", []string{four}},
		// firewalld has one chain for each zone of networks and interfaces, and rejects packets outside all zones.
		"accepts in chains of zones": {"inet", "accept",
			"jump zones\nreject\n}\nchain trusted {\naccept\n}\nchain public {\n}\n" +
				"chain zones {\nip saddr 10.1.0.0/16 goto trusted\nip daddr 10.1.0.0/16 jump trusted\ngoto public",
			[]string{six}},
		"chains that accept nothing": {"inet", "accept",
			"jump zones\nreject\n}\nchain public {\n}\nchain zones {\niifname \"eth0\" jump public\n",
			[]string{four, six}},
		"a drop in another chain": {"ip", "accept", "jump every\n}\nchain every {\ncounter drop", []string{four}},
		"a drop for some in another chain": {"ip", "accept",
			"ip saddr 192.0.2.1 jump every\n}\nchain every {\ncounter drop", nil},
	} {
		t.Run(name, func(t *testing.T) {
			loadRules(t, fmt.Sprintf(chain, row.family, row.policy, row.rules))
			f := &otherFilters{clusters: podNetworks}
			if err := f.ensureAccepted(true); err != nil {
				t.Fatal(err)
			}
			found := f.foundProblems()
			if len(found) != len(row.found) {
				t.Fatalf("found is %q", found)
			}
			for _, network := range row.found {
				if !slices.ContainsFunc(found, func(s string) bool {
					return strings.Contains(s, "saddr "+network) &&
						strings.Contains(s, "the chain "+row.family+" others through")
				}) {
					t.Errorf("nothing is said of %s: %q", network, found)
				}
			}
		})
	}
}

// Chains of the cluster's own daemons are not reported.
func TestOwnChainsAreNotReported(t *testing.T) {
	loadRules(t,
		"table ip clusterctl-policy {\n chain forward {\n type filter hook forward priority 0; policy drop;\n }\n}\n")
	f := &otherFilters{clusters: podNetworks}
	if err := f.ensureAccepted(true); err != nil || len(f.foundProblems()) > 0 {
		t.Errorf("found is %q, %v", f.foundProblems(), err)
	}
}

// Legacy iptables has its own tables, which only its own programs can change.
func TestLegacyIPTablesAcceptsPodPackets(t *testing.T) {
	var calls []string
	chain := map[string]string{}
	f := &otherFilters{clusters: podNetworks[:1], proc: t.TempDir()}
	f.call = func(input []byte, program string, args ...string) ([]byte, error) {
		words := program + " " + strings.Join(args, " ")
		switch {
		case words == "iptables-legacy -V":
			return []byte("iptables v1.8.9 (legacy)\n"), nil
		case strings.HasSuffix(words, "-S"):
			return []byte("-P FORWARD DROP\n" + chain["FORWARD"]), nil
		case strings.HasSuffix(words, "-S "+acceptChain):
			if chain[acceptChain] == "" {
				return nil, fmt.Errorf("no chain of that name")
			}
			return []byte("-N " + acceptChain + "\n" + chain[acceptChain]), nil
		case program == "iptables-legacy-restore":
			for line := range strings.Lines(string(input)) {
				if strings.HasPrefix(line, "-A ") {
					chain[acceptChain] += line
				}
			}
		case strings.HasSuffix(words, "-A FORWARD -j "+acceptChain):
			chain["FORWARD"] = "-A FORWARD -j " + acceptChain + "\n"
		default:
			return nil, fmt.Errorf("unexpected %s", words)
		}
		calls = append(calls, words)
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Join(f.proc, "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.proc, "net", "ip_tables_names"), []byte("nat\nfilter\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if problems, err := f.checkLegacy(protocols[0]); err != nil || len(problems) > 0 {
			t.Fatalf("%q, %v", problems, err)
		}
	}
	if len(calls) != 2 || !strings.Contains(chain[acceptChain], "-s 10.1.0.0/16 -j ACCEPT") ||
		!strings.Contains(chain[acceptChain], "-d 10.1.0.0/16 -j ACCEPT") {
		t.Errorf("after two looks: %q\n%s", calls, chain)
	}
	f.call = func([]byte, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound }
	if problems, err := f.checkLegacy(protocols[0]); err != nil || len(problems) != 1 ||
		!strings.Contains(problems[0], "install it") {
		t.Errorf("without the program: %q, %v", problems, err)
	}
}
