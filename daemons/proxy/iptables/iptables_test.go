package iptables

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/daemons/proxy/rules"
	"clusterctl/tests/lab/netns"
)

// port returns a service port that needs all types of rules.
func port(f nft.Family) rules.Port {
	p := rules.Port{
		Namespace: "shop",
		Service:   "web",
		Name:      "http",
		Proto:     nft.TCP,
		Port:      80,
		NodePort:  30080,
		Affinity:  60,
		Limited:   true,
	}
	address, backend, source := "10.96.0.%d", "10.244.0.%d", "198.51.100.0/24"
	if f == nft.IPv6 {
		address, backend, source = "fd00:96::%d", "fd00:244::%d", "2001:db8::/32"
	}
	p.ClusterIP = netip.MustParseAddr(fmt.Sprintf(address, 7))
	p.External = []netip.Addr{
		netip.MustParseAddr(fmt.Sprintf(address, 201)),
		netip.MustParseAddr(fmt.Sprintf(address, 202)),
	}
	p.Balanced, p.Sources = p.External[1:], []netip.Prefix{netip.MustParsePrefix(source)}
	for i := range 3 {
		p.Endpoints = append(p.Endpoints,
			rules.Endpoint{To: netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(backend, i+1)), 8080), Local: i == 0})
	}
	p.LocalEndpoints = p.Endpoints[:1]
	return p
}

// Both variants of iptables print chains as they were written. A restart therefore writes nothing, a flush is detected,
// and removing leaves other programs' chains.
// Proves S28.
func TestChainsAreWrittenComparedAndRemoved(t *testing.T) {
	machine := rules.Machine{
		Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/48")},
	}
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			if lacks := Missing(f); len(lacks) > 0 {
				t.Fatalf("this machine lacks %s: install the package iptables", strings.Join(lacks, ", "))
			}
			stack := netns.New(t)
			if err := stack.Do(func() error { return runLifecycle(f, machine) }); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The returned number of transactions is never too large. Otherwise another program's flush would be taken for one of
// our transactions.
// Proves S28.
func TestTheNumberOfTransactionsIsNeverTooLarge(t *testing.T) {
	nat, filter := rules.Chain{
		Table: "nat",
		Name:  "KUBE-SVC-AAAAAAAAAAAAAAAA",
	}, rules.Chain{
		Table: "filter",
		Name:  "KUBE-FW-AAAAAAAAAAAAAAAA",
	}
	err := netns.New(t).Do(func() error {
		for i, changed := range []map[rules.Chain][]string{
			{nat: {"-j RETURN"}, filter: {}}, {nat: {"-j RETURN"}, filter: {}}, {filter: {}}, {nat: {}},
			{nat: nil, filter: {"-j RETURN"}}, {filter: nil}, {filter: nil},
		} {
			before, err := kernel.Generation()
			if err != nil {
				return err
			}
			count, err := restore(nft.IPv4, changed, nil)
			if err != nil {
				return err
			}
			after, err := kernel.Generation()
			if err != nil {
				return err
			}
			if were := after - before; uint32(count) > were {
				t.Errorf("%d: it is said to have been written in %d transactions, and there were %d", i, count, were)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// More chains of all types, which jump to each other, than are written at once.
// Proves S28.
func TestManyChainsAreWrittenInSeveralTransactions(t *testing.T) {
	chains := rules.NewChains(
		nft.IPv4,
		rules.Machine{
			Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.245.0.0/16")},
		},
	)
	for i := range 500 {
		p := port(nft.IPv4)
		p.Service, p.ExternalLocal, p.NodePort = fmt.Sprint("web-", i), true, uint16(30000+i)
		p.ClusterIP = netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
		p.External = []netip.Addr{netip.AddrFrom4([4]byte{10, 98, byte(i >> 8), byte(i)})}
		p.Balanced = p.External
		if err := chains.SetService("shop/"+p.Service, []rules.Port{p}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(chains.All()); n <= maxChains {
		t.Fatalf("%d chains are written at once", n)
	}
	tables := Tables{}
	if err := netns.New(t).Do(func() error {
		if _, err := tables.Apply(chains); err != nil {
			return err
		}
		if exists, err := tables.IsIntact(chains, true); err != nil || !exists || len(tables.spellings) > 0 {
			return fmt.Errorf("intact: %t, %w", exists, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func runLifecycle(f nft.Family, m rules.Machine) error {
	if _, err := runProgram(nil, programName(f, ""), "-A", "INPUT", "-p", "tcp", "-m", "tcp", "--dport", "22", "-j",
		"ACCEPT"); err != nil {
		return err
	}
	before, err := readChains(f)
	if err != nil {
		return err
	}
	plain, local, empty, udp := lifecyclePorts(f)
	chains := rules.NewChains(f, m)
	tables := Tables{}
	put := func(tables *Tables, ports ...rules.Port) error {
		for _, p := range ports {
			if err := chains.SetService(p.Namespace+"/"+p.Service, []rules.Port{p}); err != nil {
				return err
			}
		}
		_, err := tables.Apply(chains)
		return err
	}
	intact := func(want bool, deep bool) error {
		if got, err := tables.IsIntact(chains, deep); err != nil || got != want {
			found, _ := readChains(f)
			changed, jumps := tables.differences(chains.All(), found)
			return fmt.Errorf("intact (deep %t) is %t, %v; differing are %v, %v", deep, got, err, changed, jumps)
		}
		return nil
	}
	if err := put(&tables, plain, local, empty, udp); err != nil {
		return err
	}
	if len(tables.spellings) > 0 {
		return fmt.Errorf("iptables has other words for %v", tables.spellings)
	}
	plain.Endpoints = plain.Endpoints[:2]
	if err := put(&tables, plain); err != nil {
		return err
	}
	for _, deep := range []bool{false, true} {
		if err := intact(true, deep); err != nil {
			return err
		}
	}
	again := Tables{}
	if _, err := again.Apply(chains); err != nil || len(again.spellings) > 0 {
		return fmt.Errorf("after a restart: %v, %v", err, again.spellings)
	}
	for _, flush := range [][]string{{"-t", "nat", "-F"}, {"-F"}, {"-t", "nat", "-F", "KUBE-SERVICES"}} {
		if out, err := exec.Command(programName(f, ""), flush...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s", out)
		}
		if err := intact(false, len(flush) == 4); err != nil {
			return fmt.Errorf("after %v: %w", flush, err)
		}
		tables.Invalidate()
		if _, err := tables.Apply(chains); err != nil {
			return err
		}
		if err := intact(true, true); err != nil {
			return err
		}
	}
	if _, err := runProgram(nil, programName(f, ""), "-A", "INPUT", "-p", "tcp", "-m", "tcp", "--dport", "22", "-j",
		"ACCEPT"); err != nil {
		return err // the flush has removed it
	}
	if err := RemoveChains(f); err != nil {
		return err
	}
	return checkChains(f, before)
}

// checkChains returns an error if the chains differ from earlier ones.
func checkChains(f nft.Family, before map[rules.Chain][]string) error {
	after, err := readChains(f)
	if err != nil {
		return err
	}
	for chain, lines := range after {
		if fmt.Sprint(before[chain]) != fmt.Sprint(lines) {
			return fmt.Errorf("left in %v is %v, and there was %v", chain, lines, before[chain])
		}
	}
	return nil
}

// lifecyclePorts returns a port of a Service with endpoints, of one with local policies, of one without endpoints, and
// of UDP.
func lifecyclePorts(f nft.Family) (plain, local, empty, udp rules.Port) {
	plain, local, empty, udp = port(f), port(f), port(f), port(f)
	local.Service, local.ExternalLocal, local.InternalLocal, local.Affinity = "local", true, true, 0
	local.ClusterIP, local.External, local.Balanced, local.NodePort = local.ClusterIP.Next(), nil, nil, 30081
	empty.Service, empty.ClusterIP, empty.Endpoints, empty.LocalEndpoints, empty.External, empty.NodePort = "empty",
		local.ClusterIP.Next(), nil, nil, nil, 30082
	udp.Service, udp.Proto, udp.ClusterIP, udp.External, udp.NodePort, udp.Affinity = "udp", nft.UDP,
		empty.ClusterIP.Next(), nil, 0, 0
	return plain, local, empty, udp
}
