package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/tests/reference/isolation"
)

// wrappedPacket returns a wrapped packet for a node's overlay, from one pod to another.
func wrappedPacket(node string, id int, from, to netip.Addr, port uint16, text string) []byte {
	b := []byte{8, 0, 0, 0, byte(id >> 16), byte(id >> 8), byte(id), 0}
	b = append(append(append(b, macOf(node)...), 2, 0, 0, 0, 0, 1), 8, 0)
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, nft.UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(20+8+len(text)))
	copy(ip[12:], from.AsSlice())
	copy(ip[16:], to.AsSlice())
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	udp := make([]byte, 8)
	binary.BigEndian.PutUint16(udp, 1000)
	binary.BigEndian.PutUint16(udp[2:], port)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(text)))
	return slices.Concat(b, ip, udp, []byte(text))
}

// A wrapped packet can claim any sender. It is accepted only from machines of the overlay, not from other hosts that
// reach the port. It is never accepted from pods, which could otherwise claim a sender that a policy allows.
//
//style:long one scenario: the same packets are sent after each change of the rules of one machine
func TestWrappedPacketsAreAcceptedOnlyFromPeers(t *testing.T) {
	sites, nodes := region(t)
	for i, s := range sites {
		s.joinNetwork(t, fmt.Sprint("n", i), nodes, 4096)
		outward, err := newMasquerade(isolation.Networks, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.runInside(func() error { return outward.setAnswerMarks(false) }); err != nil {
			t.Fatal(err)
		}
	}
	n, near, far := sites[0], sites[1], sites[2]
	near.ip(t, "addr", "add", "192.168.1.77/24", "dev", "uplink")
	n.pod.ip(t, "addr", "add", "192.168.2.3/32", "dev", "eth0")
	var pc net.PacketConn
	if err := n.pod.runInside(func() (err error) {
		pc, err = net.ListenPacket("udp", netip.AddrPortFrom(n.at4, 99).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	hears := func(within time.Duration) string {
		b := make([]byte, 100)
		_ = pc.SetReadDeadline(time.Now().Add(within))
		size, _, err := pc.ReadFrom(b)
		if err != nil {
			return err.Error()
		}
		return string(b[:size])
	}
	send := func(s *netNamespace, from, text string) {
		t.Helper()
		c, err := s.dial(netip.MustParseAddr(from), netip.MustParseAddr("192.168.1.1"), nft.UDP, 4789, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(wrappedPacket("n0", 4096, far.at4, n.at4, 99, text)); err != nil {
			t.Fatal(err)
		}
	}
	// The first packets of a machine may be lost until its neighbours are found.
	genuine := func() bool {
		t.Helper()
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); {
			send(far.netNamespace, "192.168.2.3", "the far machine")
			if hears(200*time.Millisecond) == "the far machine" {
				return true
			}
		}
		return false
	}
	if !genuine() {
		t.Fatal("nothing comes from the far machine")
	}
	check := func() {
		t.Helper()
		for _, c := range []struct {
			s          *netNamespace
			from, text string
		}{
			{near.netNamespace, "192.168.1.77", "a stranger"},
			{near.pod, near.at4.String(), "a pod of a machine of the same network"},
			{n.pod, n.at4.String(), "a pod of the machine itself"},
			{n.pod, "192.168.2.3", "a pod under the far machine's address"},
			{far.pod, far.at4.String(), "a pod of the far machine"},
		} {
			send(c.s, c.from, c.text)
			send(far.netNamespace, "192.168.2.3", "the end")
			for got := hears(10 * time.Second); got != "the end"; got = hears(10 * time.Second) {
				if t.Errorf("from %s: the pod heard %q", c.text, got); got != c.text {
					return
				}
			}
		}
	}
	check()
	// Flushed rules are restored, and nothing is left without an overlay.
	for _, family := range families {
		if err := n.runInside(func() error { return kernel.Remove(family, peerFilterName) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.runInside(func() error { return n.filter.restore(false) }); err != nil {
		t.Fatal(err)
	}
	check()
	// Edited rules are restored.
	n.listKernel(t, "nft", "insert", "rule", "ip", peerFilterName, inputHook, "accept")
	for _, deep := range []bool{false, true} {
		if err := n.runInside(func() error { return n.filter.restore(deep) }); err != nil {
			t.Fatal(err)
		}
	}
	check()
	n.joinNetwork(t, "n0", nodes[:2], 4096)
	if left := n.listKernel(t, "nft", "list", "tables"); strings.Contains(left, peerFilterName) {
		t.Errorf("without an overlay there is %s", left)
	}
}

// A machine that sends from an address that its Node does not list reports this, because its peers drop these packets.
func TestAnUnlistedSourceAddressIsDetected(t *testing.T) {
	sites, nodes := region(t)
	far := sites[2]
	check := func(when string, want ...netip.Addr) {
		t.Helper()
		if p, _ := far.joinNetwork(t, "n2", nodes, 4096); !slices.Equal(p.Unlisted, want) {
			t.Errorf("%s: %v are not listed, want %v", when, p.Unlisted, want)
		}
	}
	check("as its Node says")
	const other = "192.168.2.77"
	far.ip(t, "addr", "add", other+"/24", "dev", "uplink")
	check("with another address that it does not use")
	far.ip(t, "route", "replace", "default", "via", "192.168.2.254", "src", other)
	check("when it sends under another address", netip.MustParseAddr(other))
	at := len(nodes) - 1
	nodes[at] = nodes[at].DeepCopy()
	nodes[at].Status.Addresses = append(nodes[at].Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: other})
	check("when its Node lists that as well")
}
