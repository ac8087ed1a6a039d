package network

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/network/link"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
)

// enableStrictFilter enables strict reverse path filtering on machines.
func enableStrictFilter(t *testing.T, sites ...*site) {
	t.Helper()
	for _, s := range sites {
		if err := s.runInside(func() error {
			for _, name := range []string{"all", "default"} {
				if err := setKernel("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", "1"); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// wrappedCount returns how many packets a machine has received through the overlay.
func (s *site) wrappedCount(t *testing.T) (n uint64) {
	t.Helper()
	if err := s.runInside(func() error {
		l, err := netlink.LinkByName(overlayName)
		if err == nil {
			n = l.Attrs().Statistics.RxPackets
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// newControlledRegion returns a region whose first machine has no Node but is in the inventory.
func newControlledRegion(t *testing.T) (sites []*site, nodes []*corev1.Node, list inventory.Inventory) {
	t.Helper()
	sites, nodes = region(t)
	sites[0].ip(t, "link", "del", link.Name("pod", "eth0"))
	// By default, the kernel would choose this address as source.
	sites[0].ip(t, "addr", "add", "172.31.0.1/32", "dev", "lo")
	enableStrictFilter(t, sites...)
	return sites, nodes[1:], inventory.Inventory{
		"n0": {Addresses: []string{"192.168.1.1", "2001:db8:1::1"}},
		"n1": {Addresses: []string{"192.168.1.2"}},
		"n2": {Addresses: []string{"192.168.2.3"}},
	}
}

// A machine without a Node, such as one of a control plane, reaches pods behind a router, for example for webhooks. The
// response takes the way of the request, as strict reverse path filters require.
func TestAMachineWithoutANodeReachesPodsBehindARouter(t *testing.T) {
	sites, nodes, list := newControlledRegion(t)
	m, near, n := sites[0], sites[1], sites[2]
	all := func(list inventory.Inventory) {
		t.Helper()
		for i, s := range sites {
			for range 2 { // the second call changes nothing
				s.joinWith(t, fmt.Sprint("n", i), nodes, 4096, list)
			}
		}
	}
	reaches := func(when string, want bool, at ...netip.Addr) {
		t.Helper()
		for _, to := range at {
			before := m.wrappedCount(t)
			c, err := dialFrom(m.netNamespace, to)
			if answered := err == nil && echo(c, 5*time.Second); answered != want {
				t.Errorf("%s: the machine reaches %s: %t (%v)", when, to, answered, err)
			}
			if err == nil { // reset, so that no later packets are counted
				_ = c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
			if far := to == n.at4 || to == n.at6; want && far != (m.wrappedCount(t) > before) {
				t.Errorf("%s: the answer of %s came through the overlay: %t", when, to, !far)
			}
		}
	}
	all(list)
	for _, s := range sites[1:] {
		outward, err := newMasquerade(
			[]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/48")},
			nil,
		)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.runInside((&packetFilters{masquerade: outward}).restoreAnswerMarks); err != nil {
			t.Fatal(err)
		}
		if marks := strings.Count(s.listKernel(t, "nft", "list", "ruleset"),
			"hook prerouting"); (marks == 2) != (s == n) ||
			marks == 1 {
			t.Errorf("%d chains mark packets", marks)
		}
	}
	reaches("in the inventory", true, near.at4, near.at6, n.at4, n.at6)
	if got := near.listKernel(t, "ip", "rule") + near.listKernel(t, "ip", "-6", "rule"); strings.Contains(got,
		fmt.Sprint(returnTable)) {
		t.Errorf("a machine of the same network has rules for it:\n%s", got)
	}

	checkUnwrapped(t, m, n)
	// An unreadable inventory removes nothing, not even after a restart of the daemon.
	rules := func() string { return n.listKernel(t, "ip", "rule") + n.listKernel(t, "ip", "-6", "rule") }
	before := rules()
	if strings.Count(before, fmt.Sprint("lookup ", returnTable)) != 2 {
		t.Errorf("there should be a rule of each family:\n%s", before)
	}
	for i, s := range sites[1:] {
		s.joinWith(t, fmt.Sprint("n", i+1), nodes, 4096, nil)
	}
	reaches("without an inventory", true, n.at4, n.at6)
	n.joinWith(t, "n2", nodes[1:], 4096, nil)
	reaches("without an inventory, as the only node", true, n.at4, n.at6)
	if after := rules(); after != before {
		t.Errorf("the rules are others:\n%s\nthey were:\n%s", after, before)
	}

	// Rules and routes that another program removes are restored.
	n.ip(t, "rule", "del", "lookup", fmt.Sprint(returnTable))
	n.ip(t, "route", "flush", "table", fmt.Sprint(returnTable))
	all(list)
	reaches("after a flush", true, n.at4, n.at6)

	checkRemoval(t, n, nodes, list, rules, reaches)
}

// checkRemoval removes two machines. They lose their rules and routes, and the last node has no overlay.
func checkRemoval(t *testing.T, n *site, nodes []*corev1.Node, list inventory.Inventory, rules func() string,
	reaches func(when string, want bool, at ...netip.Addr)) {
	delete(list, "n0")
	n.joinWith(t, "n2", nodes, 4096, list)
	reaches("as a stranger", false, n.at4)
	if after := rules(); strings.Contains(after, fmt.Sprint(returnTable)) {
		t.Errorf("the rules of a removed machine exist:\n%s", after)
	}
	if left := n.listKernel(t, "ip", "route", "show", "table", "all") +
		n.listKernel(t, "ip", "-6", "route", "show", "table", "all"); strings.Contains(left,
		fmt.Sprint("table ", returnTable)) {
		t.Errorf("the routes of a removed machine exist:\n%s", left)
	}
	if left := n.listKernel(t, "bridge", "fdb", "show", "dev", overlayName); strings.Count(left, "dst") != 1 {
		t.Errorf("the kernel knows removed machines:\n%s", left)
	}
	delete(list, "n1")
	n.joinWith(t, "n2", nodes[1:], 4096, list)
	if left := n.listKernel(t, "ip", "link"); strings.Contains(left, overlayName) {
		t.Errorf("the overlay is left:\n%s", left)
	}
}

// checkUnwrapped checks that packets that pods send on their own, and responses to callers of a port of their machine,
// are not wrapped.
func checkUnwrapped(t *testing.T, m, n *site) {
	for _, from := range []netip.Addr{n.at4, n.at6} {
		to := netip.MustParseAddr(map[bool]string{true: "192.168.1.1", false: "2001:db8:1::1"}[from.Is4()])
		m.serve(t, to, 80)
		before := m.wrappedCount(t)
		if c, err := n.pod.dial(from, to, nft.TCP, 80, 5*time.Second); err != nil || !echo(c, 5*time.Second) {
			t.Errorf("the pod does not reach the machine at %s: %v", to, err)
		} else if m.wrappedCount(t) != before {
			t.Errorf("what the pod sends to %s is wrapped", to)
		}
	}
	for family, ends := range map[nft.Family][2]string{nft.IPv4: {"192.168.2.3", n.at4.String()},
		nft.IPv6: {"2001:db8:2::3", n.at6.String()}} {
		table, err := nft.NewTable(
			family,
			"port",
			&nft.Fragment{
				Chains: map[string]nft.Chain{"in": {Hook: &nft.Hook{Type: "nat", Name: "prerouting", Priority: -100},
					Rules: []nft.Rule{
						{
							nft.IsProtocol{Protocol: nft.TCP},
							nft.ToPorts{First: 8080, Last: 8080},
							nft.DNAT{To: netip.AddrPortFrom(netip.MustParseAddr(ends[1]), 80)},
						},
					}}},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.runInside(func() error { return new(kernel.Kernel).Apply(table) }); err != nil {
			t.Fatal(err)
		}
		if err := m.runInside(func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(ends[0], "8080"), 5*time.Second)
			if err == nil && !echo(c, 5*time.Second) {
				err = fmt.Errorf("no response")
			}
			return err
		}); err != nil {
			t.Errorf("a port of the pod's machine: %v", err)
		}
	}
}

// A Node determines the addresses of its machine. The inventory cannot assign them to another machine.
func TestCallersAreInventoryMachinesWithoutANode(t *testing.T) {
	list := inventory.Inventory{
		"cp":    {Addresses: []string{"2001:db8::1", "10.0.0.1"}},
		"self":  {Addresses: []string{"10.0.0.2"}},
		"a":     {Addresses: []string{"10.0.0.3"}},
		"young": {Addresses: []string{"10.0.0.4"}},
		"old":   {Addresses: []string{"10.0.0.3"}},
	}
	a, young := machine("a", "10.244.1.0/24", "10.0.0.3"), machine("young", "", "10.0.0.4")
	got := findPodless("self", list, []*corev1.Node{a, young})
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")
	want := podlessMachines{isKnown: true, local: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
		others: []podlessMachine{{"cp", []netip.Addr{four, six}},
			{"young", []netip.Addr{netip.MustParseAddr("10.0.0.4")}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("they are %v, should be %v", got, want)
	}
	a.Status.Addresses = append(a.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.1"})
	if got := findPodless("x", list, []*corev1.Node{a}).others[0]; !reflect.DeepEqual(got,
		podlessMachine{"cp", []netip.Addr{six}}) {
		t.Errorf("an address of two machines: %v", got)
	}
	if got := findPodless("self", nil, []*corev1.Node{a}); got.isKnown || got.local != nil || got.others != nil {
		t.Errorf("without an inventory: %v", got)
	}
}
