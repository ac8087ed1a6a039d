package local

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"clusterctl/provision/host"
	"clusterctl/tests/lab/netns"
)

// The routing rules and routes of a cluster are found and are removed with the cluster. Those of others stay.
func TestRoutingRulesAreRemovedWithTheCluster(t *testing.T) {
	s := netns.New(t)
	for _, family := range []string{"", "-6 "} {
		net := map[string]string{"": "10.1.0.0/24", "-6 ": "fd00:1::/64"}[family]
		s.IP(t, family+"rule add from "+net+" fwmark 0x1000/0x1000 lookup 99 priority 9900 protocol 99")
		s.IP(t, family+"rule add from "+net+" lookup 98 priority 9901")
	}
	left := func() (n int) {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			list, err := netlink.RuleList(family)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				if r.Priority == 9900 {
					t.Errorf("there is %s", r)
				}
				if r.Priority == 9901 {
					n++
				}
			}
		}
		return n
	}
	if err := s.Do(func() error {
		h, parts := &Host{}, host.Network{Protocol: host.RouteProtocol}
		found, err := h.Network(t.Context(), parts)
		if err != nil || !slices.Equal(found, []string{"2 rules of routing"}) {
			return fmt.Errorf("found %q, %v", found, err)
		}
		if err := h.ClearNetwork(t.Context(), parts); err != nil {
			return err
		}
		if found, err := h.Network(t.Context(), parts); err != nil || len(found) != 0 {
			return fmt.Errorf("left are %q, %v", found, err)
		}
		if n := left(); n != 2 {
			return fmt.Errorf("%d rules of others are left, should be 2", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
