package network

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/network/policy"
)

// icmpv6 returns a socket in the network namespace that sends and receives ICMPv6 messages.
func (s *netNamespace) icmpv6(t *testing.T, at netip.Addr) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	const mostHops = 255 // required for neighbour discovery
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, mostHops)
		})
		return errors.Join(err, failed)
	}}
	if err := s.runInside(func() (err error) {
		c, err = config.ListenPacket(t.Context(), "ip6:ipv6-icmp", at.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Neighbour discovery is only valid on one link. Routed discovery messages are ordinary packets: a pod that is not
// admitted cannot send them.
func TestRoutedNeighbourDiscoveryDoesNotBypassPolicies(t *testing.T) {
	m, r := newTestNode(t), newKernelRules(t)
	for i, uid := range []string{"victim", "neighbour"} {
		r.SetPod(uid, &policy.Pod{Namespace: "shop", Name: uid,
			Addresses: []netip.Addr{m.podAddress(i, false), m.podAddress(i, true)}})
	}
	r.apply(t)
	victim, neighbour := m.pods[0].icmpv6(t, m.podAddress(0, true)), m.pods[1].icmpv6(t, m.podAddress(1, true))
	forger := m.pods[2].icmpv6(t, m.podAddress(2, true))
	const echoRequest = 128
	send := func(from net.PacketConn, kind byte, text string) {
		message := append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, text...)
		if _, err := from.WriteTo(message, &net.IPAddr{IP: m.podAddress(0, true).AsSlice()}); err != nil {
			t.Fatal(err)
		}
	}
	for kind := byte(133); kind <= 136; kind++ {
		send(forger, kind, "forged")
	}
	send(neighbour, echoRequest, "the end")
	_ = victim.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 1500)
	for {
		n, from, err := victim.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b[min(n, 8):n]); strings.HasPrefix(text, "forged") {
			t.Errorf("the pod hears a message of type %d from %s, a pod that is not known", b[0], from)
		} else if text == "the end" {
			return
		}
	}
}
