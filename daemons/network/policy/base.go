package policy

import (
	"net/netip"

	"clusterctl/daemons/nft"
)

// TableName is the name of the tables of network policies.
const TableName = "clusterctl-policy"

// Names of what is in a table whatever pods and policies there are.
const (
	knownPods = "known-pods" // addresses of pods whose rules are there
	toItself  = "to-itself"  // pods' pairs of their own address
	// addresses that several pods get packets of, when one of them may not get everybody's
	toMany       = "to-many"
	ingressPods  = "ingress-pods" // from a pod's address to what it may get
	egressPods   = "egress-pods"  // and to what it may send
	forwardChain = "forward"
	inputChain   = "input"
)

// filter is the priority of packet filters.
const filter = 0

// letOut is a bit of a packet's mark, set by the egress rule that lets it through and cleared at once by the list of
// its sender's policies: a verdict would let it past the receiver's policies as well, or leave only the last of these
// chains. kube-proxy has 0x4000, portmap 0x2000 and the overlay's answers 0x1000.
const letOut = 0x800

// Messages by which machines of a link find each other.
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

// linkLocal are IPv6's addresses of a single link.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// Machine is what rules depend on besides pods and policies.
type Machine struct {
	Networks []netip.Prefix // of this machine's pods; a family that has none has no rules
	Links    []string       // how the names of interfaces begin that pods are behind
}

// base is what is in a family's table whatever pods and policies there are. One chain has both directions: each chain
// that every packet passes costs one percent of what pods of two machines get through.
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
	// No pod sends as somebody else, be it another pod or somebody outside whom a policy lets in. That is looked at in
	// every packet of a pod, also in connections that are known: whoever knows the ports of one could send into it. Its
	// own machine hears the answers of a pod that is not known yet.
	for _, l := range m.Links {
		through = append(through, nft.Rule{nft.Through{Prefix: l}, nft.Astray{}, drop})
	}
	through = append(through, nft.Rule{nft.Known{}, accept})
	unknown := nft.In{Set: knownPods, Key: source, Not: true}
	for _, l := range m.Links {
		behind := nft.Through{Prefix: l}
		if f == nft.IPv6 {
			// An address of the link leads back to the pod behind it, and nowhere else.
			in = append(in, nft.Rule{behind, nft.From{Net: linkLocal}, accept})
		}
		in = append(in, nft.Rule{behind, nft.Astray{}, drop}, nft.Rule{behind, nft.First{}, unknown, drop})
		through = append(through, nft.Rule{behind, unknown, drop})
	}
	// A pod that a service leads back to itself.
	through = append(through, nft.Rule{nft.In{Set: toItself, Key: ends}, accept})
	for _, n := range m.Networks {
		if of(n.Addr(), f) {
			through = append(through,
				nft.Rule{nft.From{Net: n}, nft.In{Set: knownPods, Key: source, Not: true}, drop},
				nft.Rule{nft.To{Net: n}, nft.In{Set: knownPods, Key: destination, Not: true}, drop})
		}
	}
	through = append(through, nft.Rule{nft.In{Set: toMany, Key: destination}, drop},
		nft.Rule{nft.Marked{Bits: letOut}}, // whoever has set it
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

// many are the addresses of several receivers: groups', and those of a whole link.
func many(f nft.Family) nft.Addresses {
	if f == nft.IPv6 {
		return nft.Of(netip.MustParsePrefix("ff00::/8"))
	}
	return nft.Of(netip.MustParsePrefix("224.0.0.0/3"))
}
