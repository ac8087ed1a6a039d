package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"clusterctl/daemons/network/policy"
	"clusterctl/tests/isolation"
)

// socket returns a UDP socket in the network namespace, bound to an address.
func (s *stack) socket(t *testing.T, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	if err := s.inside(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, from *net.UDPConn, to netip.AddrPort, text string) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort([]byte(text), to); err != nil {
		t.Fatal(err)
	}
}

// hears returns the text of the next packet.
func hears(t *testing.T, at *net.UDPConn) string {
	t.Helper()
	_ = at.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 100)
	n, _, err := at.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// A pod cannot inject packets into another pod's established connection, even with the addresses and ports of its ends.
// Both families are tested with real packets.
// Proves S27.
func TestNobodySendsIntoAnothersConnection(t *testing.T) {
	m, r := newBench(t), newRules(t)
	for i, uid := range []string{"victim", "neighbour", "forger"} {
		r.SetPod(uid, &policy.Pod{Namespace: "shop", Name: uid, Addresses: []netip.Addr{m.at(i, false), m.at(i, true)}})
	}
	r.apply(t)
	forger := m.here[2]
	for _, is6 := range []bool{false, true} {
		for what, peer := range map[string]struct {
			*stack
			a netip.Addr
		}{"outside": {m.beyond, outsideOf(is6)}, "a pod of the machine": {m.here[1], m.at(1, is6)}} {
			pod, far := netip.AddrPortFrom(m.at(0, is6), 7001), netip.AddrPortFrom(peer.a, 7002)
			near, other := m.here[0].socket(t, pod), peer.socket(t, far)
			send(t, near, far, "a question")
			if got := hears(t, other); got != "a question" {
				t.Fatalf("with %s: %q", what, got)
			}
			send(t, other, pod, "an answer")
			if got := hears(t, near); got != "an answer" {
				t.Fatalf("with %s: %q", what, got)
			}
			for _, from := range []netip.AddrPort{pod, far} {
				address := []string{
					"addr",
					"add",
					netip.PrefixFrom(from.Addr(), from.Addr().BitLen()).String(),
					"dev",
					"eth0",
				}
				if is6 {
					address = append(address, "nodad")
				}
				forger.ip(t, address...)
				forged := forger.socket(t, from)
				if from == pod {
					send(t, forged, far, "forged")
				} else {
					send(t, forged, pod, "forged")
				}
				forged.Close()
				forger.ip(t, "addr", "del", address[2], "dev", "eth0")
			}
			send(t, near, far, "another question")
			if got := hears(t, other); got != "another question" {
				t.Errorf("%s hears %q under the address of pod %s", what, got, pod)
			}
			send(t, other, pod, "another answer")
			if got := hears(t, near); got != "another answer" {
				t.Errorf("pod %s hears %q under the address of %s", pod, got, what)
			}
			near.Close()
			other.Close()
		}
	}
}

// at returns the address of a pod by its number.
func (m *bench) at(i int, is6 bool) netip.Addr {
	if is6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:1::%d", i+1))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", i+1))
}

func outsideOf(is6 bool) netip.Addr {
	return isolation.Outside[slices.IndexFunc(isolation.Outside, func(a netip.Addr) bool { return a.Is6() == is6 })]
}
