package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/network/link"
)

// announce sends a router advertisement on a link.
func (s *netNamespace) announce(name string) error {
	return s.runInside(func() error {
		l, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, l.Index); err != nil {
			return err
		}
		advertisement := append([]byte{134, 0, 0, 0, 64, 0, 0x07, 0x08}, make([]byte, 8)...)
		return unix.Sendto(fd, advertisement, 0,
			&unix.SockaddrInet6{Addr: netip.IPv6LinkLocalAllNodes().As16(), ZoneId: uint32(l.Index)})
	})
}

// The interfaces of pods support IPv6 even if pods only have IPv4 addresses. Router advertisements of pods are ignored
// regardless of the machine's settings, even on interfaces of an earlier release.
func TestRouterAdvertisementsOfPodsAreIgnored(t *testing.T) {
	for _, listens := range []string{"1", "2"} {
		m, router := newNetNamespace(t), newNetNamespace(t)
		if err := m.runInside(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_ra", []byte(listens), 0o644)
		}); err != nil {
			t.Fatal(err)
		}
		var pods []*netNamespace
		var names []string
		for i := range 2 {
			s := newNetNamespace(t)
			p := link.Pair{Host: link.Name(fmt.Sprint("pod", i), "eth0"), Inside: "eth0", Addresses: []link.Address{
				{IP: netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", i+2)), Gateway: netip.MustParseAddr("10.1.0.1")}}}
			if err := m.runInside(func() error { return p.Create(s.namespacePath()) }); err != nil {
				t.Fatal(err)
			}
			pods, names = append(pods, s), append(names, p.Host)
		}
		if err := m.runInside(func() error {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+names[1]+"/accept_ra", []byte(listens),
				0o644); err != nil {
				return err
			}
			return disableRouterAdvertisements()
		}); err != nil {
			t.Fatal(err)
		}
		m.ip(t, "link", "add", "uplink", "type", "veth", "peer", "name", "wire")
		m.move(t, "wire", router)
		m.ip(t, "link", "set", "uplink", "up")
		router.ip(t, "link", "set", "wire", "up")
		site := &site{netNamespace: m}
		// The real router's advertisement is accepted, which shows that earlier advertisements of pods were processed
		// as well. A sender waits until its address is valid.
		var ways string
		for until, all := time.Now().Add(15*time.Second), false; !all ||
			!strings.Contains(ways, "uplink"); ways = site.listKernel(t, "ip", "-6", "route", "show", "default") {
			if time.Now().After(until) {
				t.Fatalf("not everybody is heard: %s", ways)
			}
			all = true
			for _, s := range pods {
				all = s.announce("eth0") == nil && all
			}
			all = router.announce("wire") == nil && all
			time.Sleep(50 * time.Millisecond)
		}
		if strings.Contains(ways, link.Prefix) {
			t.Errorf("with accept_ra=%s the machine's way out is by a pod:\n%s", listens, ways)
		}
	}
}
