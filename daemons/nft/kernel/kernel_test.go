package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"clusterctl/daemons/nft"
)

// TestMain runs the tests in a separate network namespace.
func TestMain(m *testing.M) {
	const inside = "NFT_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Env = append(os.Environ(), inside+"=1")
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	var exit *exec.ExitError
	switch err := self.Run(); {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "these tests need root, for a network namespace of their own:", err)
		os.Exit(1)
	}
}

var (
	destinationKey = []nft.Field{nft.Destination, nft.Protocol, nft.Port}
	addressPair    = []nft.Field{nft.Source, nft.Destination}
)

// newFullTable returns a table with every statement that rules can have.
//
//style:long one literal table with every statement
func newFullTable(t testing.TB, f nft.Family) *nft.Table {
	t.Helper()
	net, one, two := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParseAddrPort(
		"172.16.0.1:80"), netip.MustParseAddrPort("172.16.0.2:80")
	if f == nft.IPv6 {
		net, one, two = netip.MustParsePrefix("fd00::/8"), netip.MustParseAddrPort(
			"[2001:db8::1]:80"), netip.MustParseAddrPort("[2001:db8::2]:80")
	}
	goes := func(to string) nft.Decide { return nft.Decide{Verdict: nft.Verdict{Action: "goto", Chain: to}} }
	table, err := nft.NewTable(f, "test", &nft.Fragment{
		Sets: map[string]nft.Set{
			"services": {
				Key:    destinationKey,
				Values: nft.Verdicts,
			}, "pairs": {Key: addressPair}, "nets": {Key: []nft.Field{nft.Source}, Ranges: true},
			"seen": {
				Key:     []nft.Field{nft.Source},
				Timeout: 60,
			}, "ports": {Key: []nft.Field{nft.Protocol, nft.Port}, Values: nft.Verdicts},
			"counts": {
				Key:    destinationKey,
				Values: nft.Numbers,
			}, "endpoints": {Key: append(destinationKey[:3:3], nft.Index), Values: nft.Endpoints},
		},
		Chains: map[string]nft.Chain{
			"nat": {Hook: &nft.Hook{Type: "nat", Name: "prerouting", Priority: -100}, Rules: []nft.Rule{
				{nft.StoreNumber{Map: "counts", Key: destinationKey}}, {nft.GotoStored{Chains: []string{"one", "of"}}},
				{nft.Lookup{Map: "services", Key: destinationKey}},
				{
					nft.ToLocal{},
					nft.ToNet{Net: net, Not: true},
					nft.Lookup{Map: "ports", Key: []nft.Field{nft.Protocol, nft.Port}},
				},
			}},
			"after": {Hook: &nft.Hook{Type: "nat", Name: "postrouting", Priority: 100}, Rules: []nft.Rule{
				{nft.Marked{Bits: 0x4000}, nft.Masquerade{}},
				{nft.InSet{Set: "pairs", Key: addressPair}, nft.Masquerade{}},
			}},
			"forward": {Hook: &nft.Hook{Type: "filter", Name: "forward"}, Rules: []nft.Rule{
				{nft.EstablishedConnection{}, nft.Decide{Verdict: nft.Verdict{Action: "accept"}}},
				{nft.Reply{}, nft.Untranslated{}, nft.Mark{Bits: 0x1000}},
				{
					nft.NewConnection{},
					nft.InSet{Set: "nets", Key: []nft.Field{nft.Source}, Not: true},
					nft.IsProtocol{Protocol: nft.TCP},
					nft.ToPorts{First: 80, Last: 90},
					nft.Reject{},
				},
				{nft.OnLink{}, nft.IsProtocol{Protocol: nft.UDP}, nft.Decide{Verdict: nft.Verdict{Action: "accept"}}},
				{nft.FromInterface{Prefix: "kpod"}, nft.WrongInterface{},
					nft.Decide{Verdict: nft.Verdict{Action: "drop"}}},
				{
					nft.FromInterface{Prefix: "cali", Not: true},
					nft.IsProtocol{Protocol: nft.UDP},
					nft.ToPorts{First: 53, Last: 53},
					nft.Decide{Verdict: nft.Verdict{Action: "drop", Chain: ""}},
				},
			}},
			"of": {
				Rules: []nft.Rule{
					{nft.ClearStored{}},
					{nft.RandomFrom{Map: "endpoints", Key: destinationKey, Count: 2}},
					{nft.RandomFrom{Map: "endpoints", Key: destinationKey, Count: 1}},
				},
			},
			"one": {
				Rules: []nft.Rule{
					{nft.FromNet{Net: net, Not: true}, nft.Mark{Bits: 0x4000}},
					{nft.IsProtocol{Protocol: nft.TCP}, nft.RandomTo{To: []netip.AddrPort{one, two}}},
				},
			},
			"each": {
				Rules: []nft.Rule{
					{nft.InSet{Set: "seen", Key: []nft.Field{nft.Source}}, goes("last")},
					{nft.Random{Chains: []string{"last", "one"}}},
				},
			},
			"last": {
				Rules: []nft.Rule{
					{nft.FromLocal{}, nft.AddSource{Set: "seen", Timeout: 60}},
					{nft.IsProtocol{Protocol: nft.TCP}, nft.DNAT{To: one}},
				},
			},
		},
		Elements: map[string][]nft.Element{
			"services": {
				{
					Key:   nft.Key{Destination: nft.SingleAddress(one.Addr()), Protocol: nft.TCP, Port: 80},
					Value: nft.VerdictValue("goto", "each"),
				},
				{
					Key:   nft.Key{Destination: nft.SingleAddress(two.Addr()), Protocol: nft.UDP, Port: 80},
					Value: nft.VerdictValue("drop", ""),
				},
			},
			"ports": {{Key: nft.Key{Protocol: nft.SCTP, Port: 30000}, Value: nft.VerdictValue("goto", "one")}},
			"counts": {
				{
					Key:   nft.Key{Destination: nft.SingleAddress(two.Addr()), Protocol: nft.TCP, Port: 80},
					Value: nft.Value{Number: 2},
				},
			},
			"endpoints": {
				{
					Key:   nft.Key{Destination: nft.SingleAddress(two.Addr()), Protocol: nft.TCP, Port: 80, Index: 1},
					Value: nft.Value{To: one},
				},
			},
			"pairs": {{Key: nft.Key{Source: nft.SingleAddress(one.Addr()),
				Destination: nft.SingleAddress(one.Addr())}}},
			"nets": {
				{Key: nft.Key{Source: nft.NetworkAddresses(net)}},
				{Key: nft.Key{Source: nft.Addresses{First: one.Addr(), Last: two.Addr()}}},
				{Key: nft.Key{Source: nft.SingleAddress(two.Addr().Next())}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// What is written can be read back, for every statement and both families, and nft can print it.
// Proves S28.
func TestAppliedRulesAreReadBack(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		table := newFullTable(t, f)
		var k Kernel
		if err := k.Apply(table); err != nil {
			t.Fatal(err)
		}
		for _, deep := range []bool{false, true} {
			k.generation-- // simulates a change by another program
			if isIntact, err := k.IsIntact(table, deep); err != nil || !isIntact {
				t.Errorf("%s: intact is %t, %v", f, isIntact, err)
			}
		}
		out, err := exec.Command("nft", "list", "table", f.String(), "test").CombinedOutput()
		if err != nil {
			t.Fatalf("nft list: %s", out)
		}
		hops := map[nft.Family]string{nft.IPv4: "ip ttl 255", nft.IPv6: "ip6 hoplimit 255"}[f]
		for _, want := range []string{hops, "to numgen random mod 2 map { 0 : ", "vmap { 0 : goto last, 1 : goto one }",
			"masquerade fully-random", "goto each", "timeout 1m", "flags interval", "tcp dport 80-90", "reject"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if err := Remove(f, "test"); err != nil {
			t.Fatal(err)
		}
		if err := Remove(f, "test"); err != nil {
			t.Errorf("remove what is not there: %v", err)
		}
	}
}

func runCommand(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %s", command, out)
	}
}

// Changes by other programs are detected and reverted: a flush at once, and an edit by the deep check.
// Proves S28.
func TestForeignChangesAreDetected(t *testing.T) {
	table := newFullTable(t, nft.IPv4)
	var k Kernel
	for what, c := range map[string]struct {
		command string
		deep    bool
	}{
		"the ruleset flushed":    {"nft flush ruleset", false},
		"the table flushed":      {"nft flush table ip test", false},
		"a base chain flushed":   {"nft flush chain ip test nat", false},
		"another chain flushed":  {"nft flush chain ip test each", true},
		"a rule added":           {"nft add rule ip test last drop", true},
		"an element taken":       {"nft delete element ip test nets { 172.16.0.3 }", true},
		"an element added":       {"nft add element ip test nets { 1.2.3.4 }", true},
		"a chain added":          {"nft add chain ip test more", true},
		"an endpoint":            {"nft delete element ip test endpoints { 172.16.0.2 . tcp . 80 . 1 }", true},
		"how many there are":     {"nft delete element ip test counts { 172.16.0.2 . tcp . 80 }", true},
		"a verdict of a service": {"nft delete element ip test ports { sctp . 30000 }", true},
	} {
		if err := k.Apply(table); err != nil {
			t.Fatal(err)
		}
		runCommand(t, "nft add table ip other") // rules in other tables do not matter
		for _, deep := range []bool{false, true} {
			if isIntact, err := k.IsIntact(table, deep); err != nil || !isIntact {
				t.Fatalf("%s: before it intact is %t, %v", what, isIntact, err)
			}
		}
		runCommand(t, c.command)
		if isIntact, err := k.IsIntact(table, c.deep); err != nil || isIntact {
			t.Errorf("%s: intact is %t, %v", what, isIntact, err)
		}
		k.Invalidate()
		if err := k.Apply(table); err != nil {
			t.Fatalf("%s: put back: %v", what, err)
		}
		if isIntact, err := k.IsIntact(table, true); err != nil || !isIntact {
			t.Errorf("%s: after it was put back intact is %t, %v", what, isIntact, err)
		}
	}
	if err := Remove(nft.IPv4, "test"); err != nil {
		t.Fatal(err)
	}
}

// A change by another program during our transaction is detected afterwards. Removed rules are never taken for those
// just written.
// Proves S28.
func TestForeignChangesDuringTheCheckAreDetected(t *testing.T) {
	table := newFullTable(t, nft.IPv4)
	var k Kernel
	apply := func() {
		t.Helper()
		if err := k.Apply(table); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	runCommand(t, "nft flush chain ip test each")
	if err := table.Put("more", &nft.Fragment{Chains: map[string]nft.Chain{"more": {}}}); err != nil {
		t.Fatal(err)
	}
	apply()
	if isIntact, err := k.IsIntact(table, true); err != nil || isIntact {
		t.Errorf("an edit before a change: intact is %t, %v", isIntact, err)
	}

	flush := make(chan struct{})
	flushed := make(chan error)
	go func() {
		for range flush {
			flushed <- Remove(nft.IPv4, "test")
		}
	}()
	defer close(flush)
	for i := range 100 {
		k.Invalidate()
		flush <- struct{}{}
		err := k.Apply(table)
		if removed := <-flushed; removed != nil {
			t.Fatal(removed)
		}
		if err != nil && !errors.Is(err, errRulesChanging) && !errors.Is(err, syscall.ENOENT) {
			t.Fatal(err)
		}
		s, err := openSocket()
		if err != nil {
			t.Fatal(err)
		}
		_, exists, err := s.read(table)
		s.close()
		if err != nil {
			t.Fatal(err)
		}
		isIntact, err := k.IsIntact(table, false)
		if err != nil {
			t.Fatal(err)
		}
		if k.IsApplied() && isIntact && !exists {
			t.Fatalf("round %d: the table is gone, and counts as intact", i)
		}
	}
}

// A restarted daemon only changes what differs. A table of another type is replaced.
// Proves S28.
func TestAnExistingTableIsTakenOver(t *testing.T) {
	var k, restarted, other Kernel
	if err := k.Apply(newFullTable(t, nft.IPv4)); err != nil {
		t.Fatal(err)
	}
	before := tableHandles(t)
	if err := restarted.Apply(newFullTable(t, nft.IPv4)); err != nil {
		t.Fatal(err)
	}
	if after := tableHandles(t); after != before {
		t.Errorf("rules were replaced:\n%s\nwere\n%s", after, before)
	}
	base := &nft.Fragment{Sets: map[string]nft.Set{"nets": {Key: []nft.Field{nft.Destination}}}}
	changed, err := nft.NewTable(nft.IPv4, "test", base)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Apply(changed); err != nil {
		t.Fatal(err)
	}
	if after := tableHandles(t); strings.Contains(after, "chain") {
		t.Errorf("chains of another make are still there:\n%s", after)
	}
	if err := Remove(nft.IPv4, "test"); err != nil {
		t.Fatal(err)
	}
}

func tableHandles(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "-a", "list", "table", "ip", "test").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list: %s", out)
	}
	return string(out)
}

// If the kernel rejects a change, the error names the rejected object, and nothing changes.
func TestARejectedTransactionChangesNothing(t *testing.T) {
	table := newFullTable(t, nft.IPv4)
	var k Kernel
	if err := k.Apply(table); err != nil {
		t.Fatal(err)
	}
	before := tableHandles(t)
	bad := &nft.Fragment{
		Chains: map[string]nft.Chain{
			"bad": {Rules: []nft.Rule{{nft.Decide{Verdict: nft.Verdict{Action: "goto", Chain: "nowhere"}}}}},
		},
	}
	if err := table.Put("bad", bad); err != nil {
		t.Fatal(err)
	}
	if err := k.Apply(table); err == nil || !strings.Contains(err.Error(), "chain bad") {
		t.Errorf("the error is %v", err)
	}
	if after := tableHandles(t); after != before {
		t.Errorf("the table is\n%s\nwas\n%s", after, before)
	}
	if err := table.Put("bad", nil); err != nil {
		t.Fatal(err)
	}
	if err := k.Apply(table); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	if err := Remove(nft.IPv4, "test"); err != nil {
		t.Fatal(err)
	}
}
