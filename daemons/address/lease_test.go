package address

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func lease(version, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
}

// A lease is taken from a holder only after it has been silent for as long as the lease lasts.
func TestWhoTakesTheLease(t *testing.T) {
	start := time.Unix(1000, 0)
	type look struct {
		after time.Duration
		lease *coordinationv1.Lease
		well  bool
		want  action
	}
	for name, looks := range map[string][]look{
		"the first":                     {{0, nil, true, take}},
		"the first, not well":           {{0, nil, false, wait}},
		"given up":                      {{0, lease("1", ""), true, take}},
		"given up, not well":            {{0, lease("1", ""), false, wait}},
		"ours":                          {{0, lease("1", "a"), true, keep}},
		"ours, not well":                {{0, lease("1", "a"), false, release}},
		"another's that is renewed":     {{0, lease("1", "b"), true, wait}, {3, lease("2", "b"), true, wait}, {6, lease("3", "b"), true, wait}},
		"another's that is silent":      {{0, lease("1", "b"), true, wait}, {3, lease("1", "b"), true, wait}, {4, lease("1", "b"), true, take}},
		"silent, and we are not well":   {{0, lease("1", "b"), true, wait}, {9, lease("1", "b"), false, wait}},
		"another's, seen late":          {{50, lease("1", "b"), true, wait}, {53, lease("1", "b"), true, wait}},
		"silent, then taken by a third": {{0, lease("1", "b"), true, wait}, {4, lease("2", "c"), true, wait}},
	} {
		c := claim{self: "a"}
		for i, l := range looks {
			if got := c.next(l.lease, l.well, start.Add(l.after*time.Second)); got != l.want {
				t.Errorf("%s, look %d: %s, want %s", name, i, got, l.want)
			}
		}
	}
}

// The kernel forgets an address before another machine may take the lease, also when
// the holder froze between renewal and kernel, and the kernel is slow.
func TestTheAddressIsGoneBeforeTheLeaseIs(t *testing.T) {
	const late = 1300 * time.Millisecond // of the kernel
	for _, elapsed := range []time.Duration{0, period, period + time.Millisecond, callTimeout} {
		if gone := elapsed + lifetime(elapsed) + late; gone >= leaseTime {
			t.Errorf("renewed %s ago: gone after %s, the lease is free after %s", elapsed, gone, leaseTime)
		}
	}
	if hold >= leaseTime {
		t.Error("the holder lets go later than others take")
	}
}

func TestAnnouncementsAreAsTheStandardsSay(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	want := []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9}
	if got := arpAnnouncement(mac, netip.MustParseAddr("10.0.0.9")); !bytes.Equal(got, want) {
		t.Errorf("ARP: %v", got)
	}
	p := neighborAdvertisement(mac, netip.MustParseAddr("fd00::9"))
	if len(p) != 40+32 || p[0]>>4 != 6 || p[6] != icmpv6 || p[7] != 255 || p[40] != advertise {
		t.Errorf("neighbour advertisement: %v", p)
	}
	// With its checksum in place, the sum over all is zero.
	if got := checksum(netip.MustParseAddr("fd00::9"), netip.MustParseAddr("ff02::1"), p[40:]); got != 0 {
		t.Errorf("checksum %x, field %x", got, binary.BigEndian.Uint16(p[42:]))
	}
}
