package flows

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/rules"
)

// S07: a client that comes from a port from which an endpoint was asked that is gone is not sent after it.
func TestWhichFlowsAreForgotten(t *testing.T) {
	f := &flows{left: map[way]bool{}, all: map[way]bool{}}
	f.ways(rules.Port{ClusterIP: netip.MustParseAddr("10.96.0.7"), Port: 8, NodePort: 30008, External: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		netip.MustParseAddrPort("10.244.0.1:80"), f.left)
	f.ways(rules.Port{ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 53, NodePort: 30053}, netip.AddrPort{}, f.all)
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
		"TCP that was not answered":              {nft.TCP, synSent, "10.96.0.7", 8, "10.244.0.1", 80, true},
		"TCP that goes on":                       {nft.TCP, established, "10.96.0.7", 8, "10.244.0.1", 80, false},
		"TCP to one that is there":               {nft.TCP, synSent, "10.96.0.7", 8, "10.244.0.2", 80, false},
		"TCP past the service":                   {nft.TCP, synSent, "10.244.0.1", 80, "10.244.0.1", 80, false},
		"TCP to a service's port of UDP":         {nft.TCP, synSent, "10.96.0.10", 53, "10.244.0.2", 53, false},
		"UDP":                                    {nft.UDP, 0, "10.96.0.7", 8, "10.244.0.1", 80, true},
		"UDP to a service without an endpoint":   {nft.UDP, 0, "10.96.0.10", 53, "10.96.0.10", 53, true},
		"UDP to a node port without an endpoint": {nft.UDP, 0, "10.99.0.1", 30053, "10.99.0.1", 30053, true},
		"UDP by a node port":                     {nft.UDP, 0, "10.99.0.1", 30008, "10.244.0.1", 80, true},
		"UDP by an external address":             {nft.UDP, 0, "192.0.2.1", 8, "10.244.0.1", 80, true},
		"UDP to it by another service":           {nft.UDP, 0, "10.96.0.8", 8, "10.244.0.1", 80, false},
		"UDP to others":                          {nft.UDP, 0, "10.96.0.7", 8, "10.244.0.2", 80, false},
	} {
		flow := &netlink.ConntrackFlow{
			Forward: netlink.IPTuple{Protocol: test.proto, DstIP: net.ParseIP(test.via), DstPort: test.port},
			Reverse: netlink.IPTuple{Protocol: test.proto, SrcIP: net.ParseIP(test.to), SrcPort: test.toPort},
		}
		if test.proto == nft.TCP {
			flow.ProtoInfo = &netlink.ProtoInfoTCP{State: test.state}
		}
		if got := f.MatchConntrackFlow(flow); got != test.forget {
			t.Errorf("%s: forgotten is %t", name, got)
		}
	}
}
