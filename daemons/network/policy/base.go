package policy

import (
	"net/netip"

	"clusterctl/daemons/nft"
)

// TableName is the name of the tables of network policies.
const TableName = "clusterctl-policy"

// These are the names of the sets and chains that exist in every table.
const (
	knownPodSet = "known-pods" // addresses of pods that have rules
	selfSet     = "to-itself"  // pairs of each pod's address with itself
	// multicastSet are the multicast and broadcast addresses. It is filled if one of the receiving pods may not be
	// allowed to get the packets.
	multicastSet = "to-many"
	ingressMap   = "ingress-pods" // from a pod's address to its ingress chain
	egressMap    = "egress-pods"  // from a pod's address to its egress chain
	forwardChain = "forward"
	inputChain   = "input"
)

// filterPriority is the priority of packet filter chains.
const filterPriority = 0

// egressMark is a bit of the packet mark. An egress rule that accepts a packet sets it, and the chain list of the
// sender's policies clears it. A verdict would not work: accept would skip the receiver's policies, and return would
// only leave the policy's chain. Bits in use elsewhere are 0x4000 by kube-proxy, 0x2000 by portmap, and 0x1000 by the
// overlay's answers.
const egressMark = 0x800

// firstDiscovery and lastDiscovery are the first and last ICMPv6 type of neighbour discovery.
const firstDiscovery, lastDiscovery = 133, 136

var (
	sourceKey, destinationKey = []nft.Field{nft.Source}, []nft.Field{nft.Destination}
	endsKey                   = []nft.Field{nft.Source, nft.Destination}
	portKey                   = []nft.Field{nft.Destination, nft.Protocol, nft.Port}

	acceptVerdict, dropVerdict, returnVerdict = verdict("accept", ""), verdict("drop", ""), verdict("return", "")
)

func verdict(action, chain string) nft.Decide {
	return nft.Decide{Verdict: nft.Verdict{Action: action, Chain: chain}}
}

// linkLocal is the network of IPv6 link-local addresses.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// Machine holds the inputs of the rules besides pods and policies.
type Machine struct {
	Networks []netip.Prefix // networks of this machine's pods; a family without one has no rules
	Links    []string       // name prefixes of the interfaces to pods
}

// baseFragment returns the part of a family's table that does not depend on pods and policies. One chain handles both
// directions, because each chain that every packet passes costs one percent of the throughput between pods of two
// machines.
func baseFragment(f nft.Family, m Machine) *nft.Fragment {
	// Neighbour discovery stays on one link (RFC 4861, section 7.1: receivers discard messages that a router has
	// forwarded). In the forward chain, messages on one link are those between pods on the former bridge. Routed
	// discovery messages are filtered like all other packets.
	discovery := nft.Rule{nft.IsProtocol{Protocol: nft.ICMPv6},
		nft.ICMPv6Types{First: firstDiscovery, Last: lastDiscovery},
		nft.OnLink{}, acceptVerdict}
	var through, in []nft.Rule
	if f == nft.IPv6 {
		through, in = append(through, discovery), append(in, discovery)
	}
	// A pod must not send from another address, neither another pod's nor an outside address that a policy allows. This
	// is checked for every packet of a pod, even in established connections: a pod that knows the ports of a connection
	// could otherwise inject packets. The input chain accepts responses to the machine from a pod without rules.
	for _, l := range m.Links {
		through = append(through, nft.Rule{nft.FromInterface{Prefix: l}, nft.WrongInterface{}, dropVerdict})
	}
	through = append(through, nft.Rule{nft.EstablishedConnection{}, acceptVerdict})
	unknown := nft.InSet{Set: knownPodSet, Key: sourceKey, Not: true}
	for _, l := range m.Links {
		behind := nft.FromInterface{Prefix: l}
		if f == nft.IPv6 {
			// A link-local address reaches only the pod on that link.
			in = append(in, nft.Rule{behind, nft.FromNet{Net: linkLocal}, acceptVerdict})
		}
		in = append(in, nft.Rule{behind, nft.WrongInterface{}, dropVerdict},
			nft.Rule{behind, nft.NewConnection{}, unknown, dropVerdict})
		through = append(through, nft.Rule{behind, unknown, dropVerdict})
	}
	// A service can direct a pod's packet back to the pod itself.
	through = append(through, nft.Rule{nft.InSet{Set: selfSet, Key: endsKey}, acceptVerdict})
	for _, n := range m.Networks {
		if isOfFamily(n.Addr(), f) {
			through = append(through,
				nft.Rule{nft.FromNet{Net: n}, nft.InSet{Set: knownPodSet, Key: sourceKey, Not: true}, dropVerdict},
				nft.Rule{nft.ToNet{Net: n}, nft.InSet{Set: knownPodSet, Key: destinationKey, Not: true}, dropVerdict})
		}
	}
	through = append(through, nft.Rule{nft.InSet{Set: multicastSet, Key: destinationKey}, dropVerdict},
		nft.Rule{nft.Marked{Bits: egressMark}}, // clear the bit, whatever set it
		nft.Rule{nft.Lookup{Map: egressMap, Key: sourceKey}},
		nft.Rule{nft.Lookup{Map: ingressMap, Key: destinationKey}})
	return &nft.Fragment{
		Sets: map[string]nft.Set{
			knownPodSet: {Key: sourceKey}, selfSet: {Key: endsKey}, multicastSet: {Key: destinationKey, Ranges: true},
			ingressMap: {Key: destinationKey, Values: nft.Verdicts}, egressMap: {Key: sourceKey, Values: nft.Verdicts},
		},
		Chains: map[string]nft.Chain{
			forwardChain: {Hook: &nft.Hook{Type: "filter", Name: "forward", Priority: filterPriority}, Rules: through},
			inputChain:   {Hook: &nft.Hook{Type: "filter", Name: "input", Priority: filterPriority}, Rules: in},
		},
	}
}

// multicastAddresses returns the addresses with several receivers: multicast and, for IPv4, broadcast addresses.
func multicastAddresses(f nft.Family) nft.Addresses {
	if f == nft.IPv6 {
		return nft.NetworkAddresses(netip.MustParsePrefix("ff00::/8"))
	}
	return nft.NetworkAddresses(netip.MustParsePrefix("224.0.0.0/3"))
}
