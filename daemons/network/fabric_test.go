package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config/inventory"
	"clusterctl/daemons/network/link"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/tests/reference/isolation"
)

// Proves S22.
func TestPacketsAreWrappedOnlyBehindARouter(t *testing.T) {
	w := func(to string, onLink bool) machineRoute { return machineRoute{netip.MustParsePrefix(to), onLink} }
	for _, c := range []struct {
		name string
		ways []machineRoute
		want bool
	}{
		{"the same network", []machineRoute{w("0.0.0.0/0", false), w("10.0.1.0/24", true)}, true},
		{"another network", []machineRoute{w("0.0.0.0/0", false), w("10.0.0.0/24", true)}, false},
		{"a way of its own", []machineRoute{w("10.0.1.0/24", true), w("10.0.1.2/32", false)}, false},
		{"a network of one", []machineRoute{w("0.0.0.0/0", false), w("10.0.1.2/32", true)}, true},
		{"no way", []machineRoute{w("10.0.0.0/24", true)}, true},
	} {
		if got := isOnLink(c.ways, netip.MustParseAddr("10.0.1.2")); got != c.want {
			t.Errorf("%s: on link is %t", c.name, got)
		}
	}
}

// site is a machine with one pod.
type site struct {
	*netNamespace
	pod    *netNamespace
	filter peerFilter
	at4    netip.Addr // at4 and at6 are the pod's addresses.
	at6    netip.Addr
}

// region returns two networks with a router between them: two machines on the first, and one on the second.
func region(t *testing.T) (sites []*site, nodes []*corev1.Node) {
	t.Helper()
	router := newNetNamespace(t)
	bridge := newNetNamespace(t)
	bridge.ip(t, "link", "add", "wire", "type", "bridge")
	bridge.ip(t, "link", "set", "wire", "up")
	up := func(s *netNamespace, dev, four, six string) {
		s.ip(t, "addr", "add", four, "dev", dev)
		s.ip(t, "addr", "add", six, "dev", dev, "nodad")
		s.ip(t, "link", "set", dev, "up")
	}
	enable := func(s *netNamespace) {
		if err := s.runInside(func() error { return enableForwarding(isolation.Networks) }); err != nil {
			t.Fatal(err)
		}
	}
	enable(router)
	plug := func(s *netNamespace, name string) { // connects to the first network
		bridge.ip(t, "link", "add", name, "type", "veth", "peer", "name", "uplink")
		bridge.ip(t, "link", "set", name, "master", "wire", "up")
		bridge.move(t, "uplink", s)
	}
	plug(router, "r")
	up(router, "uplink", "192.168.1.254/24", "2001:db8:1::fe/64")
	for i, segment := range []int{1, 1, 2} {
		s := &site{netNamespace: newNetNamespace(t), pod: newNetNamespace(t)}
		if segment == 1 {
			plug(s.netNamespace, fmt.Sprint("s", i))
		} else {
			router.ip(t, "link", "add", "far", "type", "veth", "peer", "name", "up2")
			up(router, "far", "192.168.2.254/24", "2001:db8:2::fe/64")
			router.ip(t, "link", "set", "up2", "name", "other")
			router.move(t, "other", s.netNamespace)
			s.ip(t, "link", "set", "other", "name", "uplink")
		}
		four, six := fmt.Sprintf("192.168.%d.%d", segment, i+1), fmt.Sprintf("2001:db8:%d::%d", segment, i+1)
		up(s.netNamespace, "uplink", four+"/24", six+"/64")
		s.ip(t, "route", "add", "default", "via", fmt.Sprintf("192.168.%d.254", segment))
		s.ip(t, "-6", "route", "add", "default", "via", fmt.Sprintf("2001:db8:%d::fe", segment))
		enable(s.netNamespace)
		pods := []string{fmt.Sprintf("10.1.%d.0/24", i), fmt.Sprintf("fd00:1:0:%d::/64", i)}
		nodes = append(
			nodes,
			&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)},
				Spec:       corev1.NodeSpec{PodCIDR: pods[0], PodCIDRs: pods},
				Status: corev1.NodeStatus{
					Addresses: []corev1.NodeAddress{
						{Type: corev1.NodeInternalIP, Address: four},
						{Type: corev1.NodeInternalIP, Address: six},
					},
				},
			},
		)
		s.at4, s.at6 = netip.MustParseAddr(fmt.Sprintf("10.1.%d.2", i)), netip.MustParseAddr(
			fmt.Sprintf("fd00:1:0:%d::2", i),
		)
		p := link.Pair{Host: link.Name("pod", "eth0"), Inside: "eth0", Addresses: []link.Address{
			{
				IP:      s.at4,
				Gateway: netip.MustParseAddr(fmt.Sprintf("10.1.%d.1", i)),
			}, {IP: s.at6, Gateway: netip.MustParseAddr(fmt.Sprintf("fd00:1:0:%d::1", i))}}}
		if err := s.runInside(func() error { return p.Create(s.pod.namespacePath()) }); err != nil {
			t.Fatal(err)
		}
		s.pod.serve(t, s.at4, 80)
		s.pod.serve(t, s.at6, 80)
		sites = append(sites, s)
	}
	return sites, nodes
}

// joinNetwork applies the plan of a site, and returns the MTU of the overlay.
func (s *site) joinNetwork(t *testing.T, self string, nodes []*corev1.Node, id int) (p Plan, largest int) {
	t.Helper()
	return s.joinWith(t, self, nodes, id, nil)
}

// joinWith is join with an inventory of machines.
func (s *site) joinWith(
	t *testing.T,
	self string,
	nodes []*corev1.Node,
	id int,
	list inventory.Inventory,
) (p Plan, largest int) {
	t.Helper()
	p = NewPlan(self, nodes)
	p.Callers = findPodless(self, list, nodes)
	if err := s.runInside(func() (err error) {
		largest, _, err = routeApplier{id, 4789, &s.filter}.apply(self, &p)
		return err
	}); err != nil {
		t.Fatalf("%s: %v", self, err)
	}
	return p, largest
}

func (s *site) listKernel(t *testing.T, args ...string) string {
	t.Helper()
	var out []byte
	if err := s.runInside(func() (err error) {
		out, err = exec.Command(args[0], args[1:]...).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%v: %s", args, out)
	}
	return string(out)
}

// Pods of all machines reach each other in both families: directly on one network, and wrapped through a router that
// does not know pods. Changes are applied, and nothing unneeded remains.
// Proves S22.
func TestPodsReachEachOtherThroughARouter(t *testing.T) {
	sites, nodes := region(t)
	all := func(id int) {
		t.Helper()
		for i, s := range sites {
			for range 2 { // the second call changes nothing
				if p, largest := s.joinNetwork(t, fmt.Sprint("n", i), nodes, id); len(p.Routes) != 4 ||
					largest != 1450 {
					t.Errorf("n%d has %d routes, and %d bytes get through", i, len(p.Routes), largest)
				}
			}
		}
		for i, from := range sites {
			for j, to := range sites {
				for _, pair := range [][2]netip.Addr{{from.at4, to.at4}, {from.at6, to.at6}} {
					if i != j &&
						!from.pod.isPassed(isolation.Packet{From: pair[0], To: pair[1], Protocol: nft.TCP, Port: 80},
							5*time.Second) {
						t.Errorf("the pod of n%d does not reach that of n%d at %s", i, j, pair[1])
					}
				}
				// A machine also reaches the pod, as host network pods do.
				if i != j {
					c, err := dialFrom(from.netNamespace, to.at4)
					if err != nil || !echo(c, 5*time.Second) {
						t.Errorf("n%d does not reach the pod of n%d: %v", i, j, err)
					}
				}
			}
		}
	}
	all(4096)
	for i, wrapped := range map[int]int{0: 2, 1: 2, 2: 4} {
		if got := strings.Count(sites[i].listKernel(t, "ip", "route")+sites[i].listKernel(t, "ip", "-6", "route"),
			" onlink"); got != wrapped {
			t.Errorf("n%d has %d wrapped routes, should have %d:\n%s", i, got, wrapped,
				sites[i].listKernel(t, "ip", "route"))
		}
	}
	// Another VXLAN ID replaces the interface. Large packets get through after path MTU discovery.
	all(7)
	big := make([]byte, 100<<10)
	c, err := sites[0].pod.dial(sites[0].at4, sites[2].at4, nft.TCP, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { _, _ = c.Write(big) }()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	piece := make([]byte, 16<<10)
	for got := 0; got < len(big); {
		n, err := c.Read(piece)
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", got, len(big), err)
		}
		got += n
	}
	// A deleted node loses its routes. With the last one, the interface is removed.
	if p, largest := sites[2].joinNetwork(t, "n2", nodes[1:], 7); len(p.Routes) != 2 || largest != 1450 {
		t.Errorf("of two nodes: %d routes, %d bytes", len(p.Routes), largest)
	}
	if left := sites[2].listKernel(t, "bridge", "fdb", "show", "dev", overlayName); strings.Count(left, "dst") != 1 {
		t.Errorf("the kernel knows more nodes than there are:\n%s", left)
	}
	if p, largest := sites[0].joinNetwork(t, "n0", nodes[:2], 7); len(p.Routes) != 2 || largest != 0 {
		t.Errorf("of one network: %d routes, %d bytes", len(p.Routes), largest)
	}
	if err := sites[0].runInside(func() error {
		if _, err := netlink.LinkByName(overlayName); err == nil {
			return fmt.Errorf("%s is there", overlayName)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if p := (isolation.Packet{From: sites[0].at6, To: sites[1].at6, Protocol: nft.TCP,
		Port: 80}); !sites[0].pod.isPassed(p, 5*time.Second) {
		t.Error("pods of one network do not reach each other any more")
	}
}

func dialFrom(s *netNamespace, to netip.Addr) (c net.Conn, err error) {
	err = s.runInside(func() error {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(to, 80).String(), 5*time.Second)
		return err
	})
	return c, err
}

// Packets of pods to the outside have their machine's address in both families, except to exceptions.
// Proves S27.
func TestPodsLeaveUnderTheirMachinesAddress(t *testing.T) {
	sites, nodes := region(t)
	s := sites[0]
	s.joinNetwork(t, "n0", nodes[:1], 1)
	outward, err := newMasquerade(isolation.Networks,
		[]netip.Prefix{netip.MustParsePrefix("192.168.1.2/32"), netip.MustParsePrefix("2001:db8:1::2/128")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.runInside(func() error { return outward.setAnswerMarks(false) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.runInside(func() error { return kernel.Remove(nft.IPv4, tableName) })
	})
	for _, c := range []struct {
		to   *site
		at   string
		from netip.Addr
		want string
	}{
		{sites[2], "192.168.2.3", s.at4, "192.168.1.1"},
		{sites[2], "2001:db8:2::3", s.at6, "2001:db8:1::1"},
		{sites[1], "192.168.1.2", s.at4, s.at4.String()},
		{sites[1], "2001:db8:1::2", s.at6, s.at6.String()},
	} {
		var pc net.PacketConn
		if err := c.to.runInside(func() (err error) {
			pc, err = net.ListenPacket("udp", net.JoinHostPort(c.at, "99"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		out, err := s.pod.dial(c.from, netip.MustParseAddr(c.at), nft.UDP, 99, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var from net.Addr
		err = os.ErrDeadlineExceeded
		for until := time.Now().Add(10 * time.Second); errors.Is(err, os.ErrDeadlineExceeded) &&
			time.Now().Before(until); {
			// the first packet may be lost until routers are found
			if _, err := out.Write([]byte("hello")); err != nil {
				t.Error(err)
			}
			_ = pc.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			_, from, err = pc.ReadFrom(make([]byte, 10))
		}
		if err != nil {
			t.Errorf("nothing comes to %s: %v", c.at, err)
		} else if got := from.(*net.UDPAddr).IP.String(); got != c.want {
			t.Errorf("what comes to %s is from %s, should be from %s", c.at, got, c.want)
		}
		out.Close()
	}
}
