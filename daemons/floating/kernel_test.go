package floating

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"clusterctl/tests/lab/netns"
)

// newMachinePair returns two machines on one network, 10.0.0.1 and 10.0.0.2. The first has a second interface.
func newMachinePair(t *testing.T) (a, b *netns.Stack) {
	a, b = netns.New(t), netns.New(t)
	a.IP(t, "link add eth0 type veth peer name far0")
	a.IP(t, "link add eth1 type veth peer name far1")
	a.MoveLink(t, "far0", b)
	b.IP(t, "link set far0 name eth0")
	for i, s := range []*netns.Stack{a, b} {
		s.IP(t, fmt.Sprintf("addr add 10.0.0.%d/24 dev eth0", i+1))
		s.IP(t, fmt.Sprintf("addr add fd00::%d/64 dev eth0 nodad", i+1))
		s.IP(t, "link set eth0 up")
	}
	a.IP(t, "link set far1 up")
	a.IP(t, "link set eth1 up")
	return a, b
}

func TestFindReturnsTheInterfaceOfAnAddress(t *testing.T) {
	a, _ := newMachinePair(t)
	look := func(address string, names ...string) (text string) {
		if err := a.Do(func() error {
			l, err := Find(netip.MustParseAddr(address), names)
			switch {
			case errors.Is(err, ErrOwnAddress):
				text = "own"
			case err != nil:
				text = "none"
			default:
				text = l.Interface()
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return text
	}
	check := func(want string, address string, names ...string) {
		t.Helper()
		if got := look(address, names...); got != want {
			t.Errorf("%s may be on %s, want %s", address, got, want)
		}
	}
	check("eth0", "10.0.0.10")
	check("eth0", "fd00::10")
	check("own", "10.0.0.1")
	check("own", "fd00::1")
	check("none", "10.9.0.1")
	check("eth1", "10.9.0.1", "eth9", "eth1")
	check("eth0", "10.0.0.10", "eth1", "eth0")
	check("eth1", "10.0.0.10", "eth1")
	check("none", "10.0.0.10", "eth9")
	a.IP(t, "route add default via 10.0.0.254")
	check("eth0", "10.9.0.1")
	check("none", "fd09::1")
	a.IP(t, "addr add 10.1.0.1/16 dev eth1")
	check("eth1", "10.1.9.9")
	a.IP(t, "link set eth1 down")
	check("eth0", "10.1.9.9") // the interface of the default route
	// A floating address is not one of the machine's own addresses.
	a.IP(t, "addr add 10.0.0.10/32 dev eth0 valid_lft 60 preferred_lft 0")
	check("eth0", "10.0.0.10")
}

// An address without renewal disappears by itself. Neighbours receive announcements of it, and can be asked for it.
func TestLinkSetsAndRemovesAnAddressInTheKernel(t *testing.T) {
	a, b := newMachinePair(t)
	for _, text := range []string{"10.0.0.10", "fd00::10"} {
		address := netip.MustParseAddr(text)
		link := func(s *netns.Stack) (l *Link) {
			if err := s.Do(func() (err error) {
				l, err = Find(address, nil)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return l
		}
		here, there := link(a), link(b)
		does := func(s *netns.Stack, f func() error) {
			t.Helper()
			if err := s.Do(f); err != nil {
				t.Fatal(err)
			}
		}
		taken := func() (yes bool) {
			t.Helper()
			does(b, func() (err error) {
				yes, err = there.IsTaken(300 * time.Millisecond)
				return err
			})
			return yes
		}
		isKnown := func() (yes bool) {
			does(b, func() error {
				list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
				for _, n := range list {
					yes = yes ||
						n.IP.String() == text && n.HardwareAddr.String() == here.link.Attrs().HardwareAddr.String()
				}
				return err
			})
			return yes
		}
		if taken() {
			t.Errorf("%s is there before anybody has it", text)
		}
		does(a, func() error { return here.Set(2 * time.Second) })
		if !taken() {
			t.Errorf("%s is on this machine and is not announced", text)
		}
		// An announcement replaces a neighbour's cached entry.
		b.IP(t, "neigh replace "+text+" lladdr 02:00:00:00:00:09 dev eth0 nud stale")
		does(a, here.Announce)
		for start := time.Now(); !isKnown(); time.Sleep(time.Millisecond) {
			if time.Since(start) > 5*time.Second {
				t.Fatalf("the neighbour does not know where %s is", text)
			}
		}
		for start := time.Now(); taken(); {
			if time.Since(start) > 5*time.Second {
				t.Fatalf("%s stays", text)
			}
		}
		does(a, func() error { return here.Set(60 * time.Second) })
		does(a, here.Remove)
		does(a, here.Remove) // removing a missing address succeeds
		if taken() {
			t.Errorf("%s is there still", text)
		}
	}
}
