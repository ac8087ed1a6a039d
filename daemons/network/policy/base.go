package policy

import (
	"net/netip"
	"slices"

	"clusterctl/daemons/nft"
)

// TableName is the name of the tables of network policies.
const TableName = "clusterctl-policy"

// Names of what is in a table whatever pods and policies there are.
const (
	knownPods    = "known-pods"   // addresses of pods whose rules are there
	toItself     = "to-itself"    // pods' pairs of their own address
	toMany       = "to-many"      // addresses that several pods get packets of, when one of them may not get everybody's
	ingressPods  = "ingress-pods" // from a pod's address to what it may get
	egressPods   = "egress-pods"  // and to what it may send
	ingressChain = "ingress"
	egressChain  = "egress"
)

// filter is the priority of packet filters. What receivers may get is looked at right after what senders may send.
const filter = 0

// Messages by which machines of a link find each other.
const firstDiscovery, lastDiscovery = 133, 136

var (
	source, destination = []nft.Field{nft.Source}, []nft.Field{nft.Destination}
	ends                = []nft.Field{nft.Source, nft.Destination}
	toPort              = []nft.Field{nft.Destination, nft.Protocol, nft.Port}

	accept, drop = nft.Do{Verdict: nft.Verdict{Action: "accept"}}, nft.Do{Verdict: nft.Verdict{Action: "drop"}}
)

// Machine is what rules depend on besides pods and policies.
type Machine struct {
	Networks []netip.Prefix // of this machine's pods; a family that has none has no rules
	Links    []string       // how the names of interfaces begin that pods are behind
}

// base is what is in a family's table whatever pods and policies there are.
func base(f nft.Family, m Machine) *nft.Fragment {
	always := []nft.Rule{{nft.Known{}, accept}}
	// No pod sends as somebody else, be it another pod or somebody outside whom a policy lets in.
	var own []nft.Rule
	for _, l := range m.Links {
		own = append(own, nft.Rule{nft.Through{Prefix: l}, nft.Astray{}, drop}, nft.Rule{nft.Through{Prefix: l}, nft.In{Set: knownPods, Key: source, Not: true}, drop})
	}
	if f == nft.IPv6 {
		// Where a neighbour is has to be found out before anything can be sent to it. Not even a pod that is not known gets anywhere by it.
		always = append(always, nft.Rule{nft.Is{Protocol: nft.ICMPv6}, nft.ICMPv6Types{First: firstDiscovery, Last: lastDiscovery}, accept})
	}
	// A pod that a service leads back to itself.
	itself := nft.Rule{nft.In{Set: toItself, Key: ends}, accept}
	out := append(append(slices.Clone(always), own...), itself)
	for _, n := range m.Networks {
		if of(n.Addr(), f) {
			out = append(out,
				nft.Rule{nft.From{Net: n}, nft.In{Set: knownPods, Key: source, Not: true}, drop},
				nft.Rule{nft.To{Net: n}, nft.In{Set: knownPods, Key: destination, Not: true}, drop})
		}
	}
	out = append(out, nft.Rule{nft.In{Set: toMany, Key: destination}, drop}, nft.Rule{nft.Lookup{Map: egressPods, Key: source}})
	in := append(slices.Clone(always), itself, nft.Rule{nft.Lookup{Map: ingressPods, Key: destination}})
	return &nft.Fragment{
		Sets: map[string]nft.Set{
			knownPods: {Key: source}, toItself: {Key: ends}, toMany: {Key: destination, Ranges: true},
			ingressPods: {Key: destination, To: nft.Verdicts}, egressPods: {Key: source, To: nft.Verdicts},
		},
		Chains: map[string]nft.Chain{
			egressChain:  {Hook: &nft.Hook{Type: "filter", Name: "forward", Priority: filter}, Rules: out},
			ingressChain: {Hook: &nft.Hook{Type: "filter", Name: "forward", Priority: filter + 1}, Rules: in},
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
