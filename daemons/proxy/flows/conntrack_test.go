package flows

import (
	"net/netip"
	"testing"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/rules"
)

// A client that reuses a port with a flow to a removed endpoint is not directed to that endpoint.
// Proves S07.
func TestStaleFlowsAreDeleted(t *testing.T) {
	f := &flowMatcher{removedPaths: map[flowPath]bool{}, wildcardPaths: map[flowPath]bool{}}
	for _, proto := range []uint8{nft.TCP, nft.UDP} {
		f.addPaths(
			rules.Port{
				Proto:     proto,
				ClusterIP: netip.MustParseAddr("10.96.0.7"),
				Port:      8,
				NodePort:  30008,
				External:  []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			},
			netip.MustParseAddrPort("10.244.0.1:80"),
			f.removedPaths,
		)
	}
	f.addPaths(rules.Port{Proto: nft.SCTP, ClusterIP: netip.MustParseAddr("10.96.0.7"), Port: 7},
		netip.MustParseAddrPort("10.244.0.1:70"), f.removedPaths)
	f.addPaths(rules.Port{Proto: nft.UDP, ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 53, NodePort: 30053},
		netip.AddrPort{}, f.wildcardPaths)
	f.addPaths(rules.Port{Proto: nft.SCTP, ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 54}, netip.AddrPort{},
		f.wildcardPaths)
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
		"SCTP":                                   {nft.SCTP, 0, "10.96.0.7", 7, "10.244.0.1", 70, true},
		"SCTP to one that is there":              {nft.SCTP, 0, "10.96.0.7", 7, "10.244.0.2", 70, false},
		"SCTP of which only another is gone":     {nft.SCTP, 0, "10.96.0.7", 8, "10.244.0.1", 80, false},
		"SCTP to a service without an endpoint":  {nft.SCTP, 0, "10.96.0.10", 54, "10.96.0.10", 54, true},
		"UDP":                                    {nft.UDP, 0, "10.96.0.7", 8, "10.244.0.1", 80, true},
		"UDP to a service without an endpoint":   {nft.UDP, 0, "10.96.0.10", 53, "10.96.0.10", 53, true},
		"UDP to a node port without an endpoint": {nft.UDP, 0, "10.99.0.1", 30053, "10.99.0.1", 30053, true},
		"UDP by a node port":                     {nft.UDP, 0, "10.99.0.1", 30008, "10.244.0.1", 80, true},
		"UDP by an external address":             {nft.UDP, 0, "192.0.2.1", 8, "10.244.0.1", 80, true},
		"UDP to it by another service":           {nft.UDP, 0, "10.96.0.8", 8, "10.244.0.1", 80, false},
		"UDP to others":                          {nft.UDP, 0, "10.96.0.7", 8, "10.244.0.2", 80, false},
	} {
		current := conntrackFlow{
			proto:       test.proto,
			destination: netip.AddrPortFrom(netip.MustParseAddr(test.via), test.port),
			endpoint:    netip.AddrPortFrom(netip.MustParseAddr(test.to), test.toPort),
			tcpState:    test.state,
		}
		if got := f.isStale(current); got != test.forget {
			t.Errorf("%s: forgotten is %t", name, got)
		}
	}
}
