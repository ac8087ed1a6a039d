package floating

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
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: version},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

// A lease is taken from a holder only after a silence of the lease's duration.
func TestLeaseIsTakenWithoutAHolderOrAfterSilence(t *testing.T) {
	start := time.Unix(1000, 0)
	type look struct {
		after time.Duration
		lease *coordinationv1.Lease
		well  bool
		want  Action
	}
	for name, looks := range map[string][]look{
		"the first":           {{0, nil, true, Take}},
		"the first, not well": {{0, nil, false, Wait}},
		"given up":            {{0, lease("1", ""), true, Take}},
		"given up, not well":  {{0, lease("1", ""), false, Wait}},
		"ours":                {{0, lease("1", "a"), true, Keep}},
		"ours, not well":      {{0, lease("1", "a"), false, Release}},
		"another's that is renewed": {{0, lease("1", "b"), true, Wait}, {3, lease("2", "b"), true, Wait},
			{6, lease("3", "b"), true, Wait}},
		"another's that is silent": {{0, lease("1", "b"), true, Wait}, {3, lease("1", "b"), true, Wait},
			{4, lease("1", "b"), true, Take}},
		"silent, and we are not well": {{0, lease("1", "b"), true, Wait}, {9, lease("1", "b"), false, Wait}},
		"nobody saw whether it is": {{0, lease("1", "b"), true, Wait}, {9, lease("1", "b"), true, Wait},
			{11, lease("1", "b"), true, Wait}, {13, lease("1", "b"), true, Take}},
		"another's, seen late":          {{50, lease("1", "b"), true, Wait}, {53, lease("1", "b"), true, Wait}},
		"silent, then taken by a third": {{0, lease("1", "b"), true, Wait}, {4, lease("2", "c"), true, Wait}},
	} {
		c := Claim{Self: "a", MaxSilence: 4 * time.Second}
		for i, l := range looks {
			if got := c.Next(l.lease, l.well, start.Add(l.after*time.Second)); got != l.want {
				t.Errorf("%s, look %d: %s, want %s", name, i, got, l.want)
			}
		}
	}
}

func TestAnnouncementsFollowTheStandards(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	want := []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9}
	if got := arpAnnouncement(mac, netip.MustParseAddr("10.0.0.9")); !bytes.Equal(got, want) {
		t.Errorf("ARP: %v", got)
	}
	p := neighborAdvertisement(mac, netip.MustParseAddr("fd00::9"))
	if len(p) != 40+32 || p[0]>>4 != 6 || p[6] != icmpv6Protocol || p[7] != 255 || p[40] != advertisementType {
		t.Errorf("neighbour advertisement: %v", p)
	}
	// A checksum over data that includes the correct checksum is zero.
	if got := checksum(netip.MustParseAddr("fd00::9"), netip.MustParseAddr("ff02::1"), p[40:]); got != 0 {
		t.Errorf("checksum %x, field %x", got, binary.BigEndian.Uint16(p[42:]))
	}
}
