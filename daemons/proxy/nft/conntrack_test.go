package nft

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"clusterctl/daemons/proxy/rules"
)

// S07: a client that comes from a port from which an endpoint was asked that is gone is not sent after it.
func TestWhichFlowsAreForgotten(t *testing.T) {
	f := &flows{to: map[netip.AddrPort]bool{netip.MustParseAddrPort("10.244.0.1:80"): true},
		via: map[netip.AddrPort]bool{netip.MustParseAddrPort("10.96.0.10:53"): true}, ports: map[uint16]bool{30053: true}}
	const established = 3
	for name, test := range map[string]struct {
		proto  uint8
		state  uint8
		via    string
		port   uint16
		to     string
		toPort uint16
		forget bool
	}{
		"TCP that was not answered":              {rules.TCP, synSent, "10.96.0.7", 8, "10.244.0.1", 80, true},
		"TCP that goes on":                       {rules.TCP, established, "10.96.0.7", 8, "10.244.0.1", 80, false},
		"TCP to one that is there":               {rules.TCP, synSent, "10.96.0.7", 8, "10.244.0.2", 80, false},
		"TCP past the service":                   {rules.TCP, synSent, "10.244.0.1", 80, "10.244.0.1", 80, false},
		"TCP to a service's port of UDP":         {rules.TCP, synSent, "10.96.0.10", 53, "10.244.0.2", 53, false},
		"UDP":                                    {rules.UDP, 0, "10.96.0.7", 8, "10.244.0.1", 80, true},
		"UDP to a service without an endpoint":   {rules.UDP, 0, "10.96.0.10", 53, "10.96.0.10", 53, true},
		"UDP to a node port without an endpoint": {rules.UDP, 0, "10.99.0.1", 30053, "10.99.0.1", 30053, true},
		"UDP to others":                          {rules.UDP, 0, "10.96.0.7", 8, "10.244.0.2", 80, false},
	} {
		flow := &netlink.ConntrackFlow{
			Forward: netlink.IPTuple{Protocol: test.proto, DstIP: net.ParseIP(test.via), DstPort: test.port},
			Reverse: netlink.IPTuple{Protocol: test.proto, SrcIP: net.ParseIP(test.to), SrcPort: test.toPort},
		}
		if test.proto == rules.TCP {
			flow.ProtoInfo = &netlink.ProtoInfoTCP{State: test.state}
		}
		if got := f.MatchConntrackFlow(flow); got != test.forget {
			t.Errorf("%s: forgotten is %t", name, got)
		}
	}
}
