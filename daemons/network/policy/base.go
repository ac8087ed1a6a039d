package policy

import (
	"net/netip"

	"clusterctl/daemons/nft"
)

// TableName is the name of the tables of network policies.
const TableName = "clusterctl-policy"

// These are the names of the sets and chains that exist in every table.
const (
	knownPods = "known-pods" // addresses of pods that have rules
	toItself  = "to-itself"  // pairs of each pod's address with itself
	// toMany are the multicast and broadcast addresses. It is filled if one of the receiving pods may not be allowed to
	// get the packets.
	toMany       = "to-many"
	ingressPods  = "ingress-pods" // from a pod's address to its ingress chain
	egressPods   = "egress-pods"  // from a pod's address to its egress chain
	forwardChain = "forward"
	inputChain   = "input"
)

// filter is the priority of packet filter chains.
const filter = 0

// letOut is a bit of the packet mark. An egress rule that accepts a packet sets it, and the chain list of the sender's
// policies clears it. A verdict would not work: accept would skip the receiver's policies, and return would only leave
// the policy's chain. Bits in use elsewhere are 0x4000 by kube-proxy, 0x2000 by portmap, and 0x1000 by the overlay's
// answers.
const letOut = 0x800

// firstDiscovery and lastDiscovery are the first and last ICMPv6 type of neighbour discovery.
const firstDiscovery, lastDiscovery = 133, 136

var (
	source, destination = []nft.Field{nft.Source}, []nft.Field{nft.Destination}
	ends                = []nft.Field{nft.Source, nft.Destination}
	toPort              = []nft.Field{nft.Destination, nft.Protocol, nft.Port}

	accept, drop, back = do("accept", ""), do("drop", ""), do("return", "")
)

func do(action, chain string) nft.Do {
	return nft.Do{Verdict: nft.Verdict{Action: action, Chain: chain}}
}

// linkLocal is the network of IPv6 link-local addresses.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// Machine holds the inputs of the rules besides pods and policies.
type Machine struct {
	Networks []netip.Prefix // networks of this machine's pods; a family without one has no rules
	Links    []string       // name prefixes of the interfaces to pods
}

// base returns the part of a family's table that does not depend on pods and policies. One chain handles both
// directions, because each chain that every packet passes costs one percent of the throughput between pods of two
// machines.
func base(f nft.Family, m Machine) *nft.Fragment {
	// Neighbour discovery stays on one link (RFC 4861, section 7.1: receivers discard messages that a router has
	// forwarded). In the forward chain, messages on one link are those between pods on the former bridge. Routed
	// discovery messages are filtered like all other packets.
	discovery := nft.Rule{nft.Is{Protocol: nft.ICMPv6}, nft.ICMPv6Types{First: firstDiscovery, Last: lastDiscovery},
		nft.OnLink{}, accept}
	var through, in []nft.Rule
	if f == nft.IPv6 {
		through, in = append(through, discovery), append(in, discovery)
	}
	// A pod must not send from another address, neither another pod's nor an outside address that a policy allows. This
	// is checked for every packet of a pod, even in established connections: a pod that knows the ports of a connection
	// could otherwise inject packets. The input chain accepts responses to the machine from a pod without rules.
	for _, l := range m.Links {
		through = append(through, nft.Rule{nft.Through{Prefix: l}, nft.Astray{}, drop})
	}
	through = append(through, nft.Rule{nft.Known{}, accept})
	unknown := nft.In{Set: knownPods, Key: source, Not: true}
	for _, l := range m.Links {
		behind := nft.Through{Prefix: l}
		if f == nft.IPv6 {
			// A link-local address reaches only the pod on that link.
			in = append(in, nft.Rule{behind, nft.From{Net: linkLocal}, accept})
		}
		in = append(in, nft.Rule{behind, nft.Astray{}, drop}, nft.Rule{behind, nft.First{}, unknown, drop})
		through = append(through, nft.Rule{behind, unknown, drop})
	}
	// A service can direct a pod's packet back to the pod itself.
	through = append(through, nft.Rule{nft.In{Set: toItself, Key: ends}, accept})
	for _, n := range m.Networks {
		if of(n.Addr(), f) {
			through = append(through,
				nft.Rule{nft.From{Net: n}, nft.In{Set: knownPods, Key: source, Not: true}, drop},
				nft.Rule{nft.To{Net: n}, nft.In{Set: knownPods, Key: destination, Not: true}, drop})
		}
	}
	through = append(through, nft.Rule{nft.In{Set: toMany, Key: destination}, drop},
		nft.Rule{nft.Marked{Bits: letOut}}, // clear the bit, whatever set it
		nft.Rule{nft.Lookup{Map: egressPods, Key: source}}, nft.Rule{nft.Lookup{Map: ingressPods, Key: destination}})
	return &nft.Fragment{
		Sets: map[string]nft.Set{
			knownPods: {Key: source}, toItself: {Key: ends}, toMany: {Key: destination, Ranges: true},
			ingressPods: {Key: destination, To: nft.Verdicts}, egressPods: {Key: source, To: nft.Verdicts},
		},
		Chains: map[string]nft.Chain{
			forwardChain: {Hook: &nft.Hook{Type: "filter", Name: "forward", Priority: filter}, Rules: through},
			inputChain:   {Hook: &nft.Hook{Type: "filter", Name: "input", Priority: filter}, Rules: in},
		},
	}
}

// many returns the addresses with several receivers: multicast and, for IPv4, broadcast addresses.
func many(f nft.Family) nft.Addresses {
	if f == nft.IPv6 {
		return nft.Of(netip.MustParsePrefix("ff00::/8"))
	}
	return nft.Of(netip.MustParsePrefix("224.0.0.0/3"))
}
