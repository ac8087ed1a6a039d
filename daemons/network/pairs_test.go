package network

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"clusterctl/daemons/network/link"
	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft"
	"clusterctl/tests/reference/isolation"
)

// connectPod connects a network namespace to this one, as podlink does.
func (s *netNamespace) connectPod(t testing.TB, mtu int, addresses ...string) link.Pair {
	t.Helper()
	p := link.Pair{Host: link.Name(addresses[0], "eth0"), Inside: "eth0", MTU: mtu}
	for _, a := range addresses {
		ip, gateway := netip.MustParseAddr(a), netip.MustParseAddr(gateway4)
		if ip.Is6() {
			gateway = netip.MustParseAddr(gateway6)
		}
		p.Addresses = append(p.Addresses, link.Address{IP: ip, Gateway: gateway})
	}
	if err := p.Create(s.namespacePath()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := link.Remove(p.Host, p.Inside, ""); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (s *netNamespace) namespacePath() string { return fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()) }

// A pair works at once in both families and with its MTU. Creating it again replaces it, and removing it leaves
// nothing.
// Proves S27.
func TestPairIsRecreatedAndRemoved(t *testing.T) {
	var none *netNamespace
	none.ip(t, "link", "set", "lo", "up")
	s := newNetNamespace(t)
	p := s.connectPod(t, 1400, "10.1.0.9", "fd00:1::9")
	for range 2 {
		for _, a := range p.Addresses {
			c, err := net.DialTimeout("tcp", netip.AddrPortFrom(a.IP, 9).String(), 2*time.Second)
			if err == nil {
				c.Close()
			}
			if n, ok := err.(net.Error); err == nil || ok && n.Timeout() {
				t.Errorf("%s does not refuse a connection to a closed port at once: %v", a.IP, err)
			}
		}
		if err := p.Check(s.namespacePath()); err != nil {
			t.Error(err)
		}
		l, err := netlink.LinkByName(p.Host)
		if err != nil {
			t.Fatal(err)
		}
		if l.Attrs().MTU != 1400 {
			t.Errorf("its largest packet is %d", l.Attrs().MTU)
		}
		if err := p.Create(s.namespacePath()); err != nil {
			t.Fatalf("once more: %v", err)
		}
	}
	s.ip(t, "addr", "del", "fd00:1::9/128", "dev", "eth0")
	if err := p.Check(s.namespacePath()); err == nil {
		t.Error("a lost address was not found")
	}
	for range 2 {
		if err := link.Remove(p.Host, p.Inside, s.namespacePath()); err != nil {
			t.Fatal(err)
		}
	}
	if err := link.Remove(p.Host, p.Inside, "/run/netns/gone"); err != nil {
		t.Errorf("of a network that is gone: %v", err)
	}
	if err := p.Check(s.namespacePath()); err == nil {
		t.Error("what was taken away is there")
	}
}

// Packets of a pod with the address of another pod of its machine are dropped, even those to the machine.
// Proves S29.
func TestAPodCannotSendWithTheAddressOfAnother(t *testing.T) {
	m, r := newTestNode(t), newKernelRules(t)
	for i := range 3 {
		a := netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", i+1))
		r.SetPod(a.String(), &policy.Pod{Namespace: "shop", Name: a.String(), Addresses: []netip.Addr{a}})
	}
	r.apply(t)
	victim, liar := netip.MustParseAddr("10.1.0.2"), m.pods[2]
	liar.ip(t, "addr", "add", "10.1.0.2/32", "dev", "eth0")
	heard := make(chan string, 16)
	at := map[string]*netNamespace{
		"10.1.0.1:9998":   m.pods[0],
		"192.0.2.1:9998":  m.beyond,
		"172.16.0.1:9998": nil,
	} // the last one is the machine
	for address, s := range at {
		var pc net.PacketConn
		if err := s.runInside(func() (err error) {
			pc, err = net.ListenPacket("udp", address)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		go func() {
			b := make([]byte, 100)
			for {
				n, _, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				heard <- address + " " + string(b[:n])
			}
		}()
	}
	for address := range at {
		to := netip.MustParseAddrPort(address)
		for _, from := range []netip.Addr{victim, netip.MustParseAddr("10.1.0.3")} {
			// in this order: the arrival of the second shows that the first was dropped
			c, err := liar.dial(from, to.Addr(), nft.UDP, to.Port(), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte(from.String())); err != nil {
				t.Error(err)
			}
			c.Close()
		}
		select {
		case got := <-heard:
			if got != address+" 10.1.0.3" {
				t.Errorf("heard %s", got)
			}
		case <-time.After(time.Minute):
			t.Errorf("nothing comes to %s of what the pod sends as itself", address)
		}
	}
}

// Pods on the bridge of an earlier release keep working and reach new pods. The bridge is removed with the last of
// them.
// Proves S27.
func TestPodsOfTheFormerBridgeKeepWorking(t *testing.T) {
	var none *netNamespace
	none.ip(t, "link", "set", "lo", "up")
	if err := enableForwarding(isolation.Networks); err != nil {
		t.Fatal(err)
	}
	none.ip(t, "link", "add", formerBridge, "type", "bridge")
	none.ip(t, "addr", "add", gateway4+"/24", "dev", formerBridge)
	none.ip(t, "link", "set", formerBridge, "up")
	t.Cleanup(func() { // clean up if the test fails
		if l, err := netlink.LinkByName(formerBridge); err == nil {
			_ = netlink.LinkDel(l)
		}
	})
	former, later := newNetNamespace(t), newNetNamespace(t)
	none.ip(t, "link", "add", "veth0", "type", "veth", "peer", "name", "eth0")
	none.ip(t, "link", "set", "veth0", "master", formerBridge, "up")
	none.move(t, "eth0", former)
	former.ip(t, "addr", "add", "10.1.0.1/24", "dev", "eth0")
	former.ip(t, "link", "set", "eth0", "up")
	former.ip(t, "route", "add", "default", "via", gateway4)
	later.connectPod(t, 0, "10.1.0.2")
	one, two := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
	former.serve(t, one, 80)
	later.serve(t, two, 80)
	for range 2 {
		if exists, err := retireBridge(isolation.Networks); err != nil || !exists {
			t.Fatalf("with a pod on it: there is %t, %v", exists, err)
		}
	}
	for _, p := range []isolation.Packet{{From: one, To: two, Protocol: nft.TCP, Port: 80},
		{From: two, To: one, Protocol: nft.TCP, Port: 80}} {
		from := former
		if p.From == two {
			from = later
		}
		if !from.isPassed(p, 5*time.Second) {
			t.Errorf("%+v does not pass", p)
		}
	}
	if exists, err := retireBridge([]netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}); err != nil || exists {
		t.Errorf("a bridge of another program: %t, %v", exists, err)
	}
	if err := link.Remove(link.Name("former", "eth0"), "eth0", former.namespacePath()); err != nil {
		// podlink also removes pods that it has not created
		t.Fatal(err)
	}
	for range 2 {
		if exists, err := retireBridge(isolation.Networks); err != nil || exists {
			t.Fatalf("without a pod: there is %t, %v", exists, err)
		}
	}
	if _, err := netlink.LinkByName(formerBridge); err == nil {
		t.Error("the bridge is still there")
	}
}
