package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"clusterctl/daemons/network/policy"
	"clusterctl/tests/reference/isolation"
)

// socket returns a UDP socket in the network namespace, bound to an address.
func (s *netNamespace) socket(t *testing.T, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	if err := s.runInside(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func sendText(t *testing.T, from *net.UDPConn, to netip.AddrPort, text string) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort([]byte(text), to); err != nil {
		t.Fatal(err)
	}
}

// receiveText returns the text of the next packet.
func receiveText(t *testing.T, at *net.UDPConn) string {
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
func TestForgedPacketsDoNotReachConnections(t *testing.T) {
	m, r := newTestNode(t), newKernelRules(t)
	for i, uid := range []string{"victim", "neighbour", "forger"} {
		r.SetPod(uid, &policy.Pod{Namespace: "shop", Name: uid,
			Addresses: []netip.Addr{m.podAddress(i, false), m.podAddress(i, true)}})
	}
	r.apply(t)
	forger := m.pods[2]
	for _, is6 := range []bool{false, true} {
		for what, peer := range map[string]struct {
			*netNamespace
			a netip.Addr
		}{"outside": {m.beyond, outsideAddress(is6)}, "a pod of the machine": {m.pods[1], m.podAddress(1, is6)}} {
			pod, far := netip.AddrPortFrom(m.podAddress(0, is6), 7001), netip.AddrPortFrom(peer.a, 7002)
			near, other := m.pods[0].socket(t, pod), peer.socket(t, far)
			sendText(t, near, far, "a question")
			if got := receiveText(t, other); got != "a question" {
				t.Fatalf("with %s: %q", what, got)
			}
			sendText(t, other, pod, "an answer")
			if got := receiveText(t, near); got != "an answer" {
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
					sendText(t, forged, far, "forged")
				} else {
					sendText(t, forged, pod, "forged")
				}
				forged.Close()
				forger.ip(t, "addr", "del", address[2], "dev", "eth0")
			}
			sendText(t, near, far, "another question")
			if got := receiveText(t, other); got != "another question" {
				t.Errorf("%s hears %q under the address of pod %s", what, got, pod)
			}
			sendText(t, other, pod, "another answer")
			if got := receiveText(t, near); got != "another answer" {
				t.Errorf("pod %s hears %q under the address of %s", pod, got, what)
			}
			near.Close()
			other.Close()
		}
	}
}

// podAddress returns the address of a pod by its number.
func (m *testNode) podAddress(i int, is6 bool) netip.Addr {
	if is6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:1::%d", i+1))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", i+1))
}

func outsideAddress(is6 bool) netip.Addr {
	return isolation.OutsideAddresses[slices.IndexFunc(isolation.OutsideAddresses,
		func(a netip.Addr) bool { return a.Is6() == is6 })]
}
