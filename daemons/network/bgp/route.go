package bgp

import (
	"math"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

func ofFamily(list []netip.Addr, v4 bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return a.Is4() != v4 })
}

// announcement returns the message that announces addresses of one family with a next hop. wide means that the peer
// supports four-byte AS numbers.
func announcement(list []netip.Addr, hop netip.Addr, peer Peer, wide bool) (*bgp.BGPMessage, error) {
	prefixes, err := prefixes(list)
	if err != nil {
		return nil, err
	}
	inside := peer.ASN == peer.LocalASN
	var path []bgp.AsPathParamInterface
	switch {
	case inside: // the AS path is empty within the autonomous system
	case wide:
		path = append(path, bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{peer.LocalASN}))
	default:
		path = append(path, bgp.NewAsPathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint16{shortASN(peer.LocalASN)}))
	}
	attributes := []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP),
		bgp.NewPathAttributeAsPath(path),
	}
	if hop.Is4() {
		next, err := bgp.NewPathAttributeNextHop(hop)
		if err != nil {
			return nil, err
		}
		attributes = append(attributes, next)
	}
	if inside {
		attributes = append(attributes, bgp.NewPathAttributeLocalPref(100))
	}
	if hop.Is4() {
		return bgp.NewBGPUpdateMessage(nil, attributes, prefixes), nil
	}
	reach, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_IPv6_UC, prefixes, hop)
	if err != nil {
		return nil, err
	}
	return bgp.NewBGPUpdateMessage(nil, append(attributes, reach), nil), nil
}

// withdrawal returns the message that withdraws addresses of one family.
func withdrawal(list []netip.Addr, v4 bool) (*bgp.BGPMessage, error) {
	prefixes, err := prefixes(list)
	if err != nil {
		return nil, err
	}
	if v4 {
		return bgp.NewBGPUpdateMessage(prefixes, nil, nil), nil
	}
	unreach, err := bgp.NewPathAttributeMpUnreachNLRI(bgp.RF_IPv6_UC, prefixes)
	if err != nil {
		return nil, err
	}
	return bgp.NewBGPUpdateMessage(nil, []bgp.PathAttributeInterface{unreach}, nil), nil
}

func prefixes(list []netip.Addr) (all []bgp.PathNLRI, err error) {
	for _, a := range list {
		p, err := bgp.NewIPAddrPrefix(netip.PrefixFrom(a, a.BitLen()))
		if err != nil {
			return nil, err
		}
		all = append(all, bgp.PathNLRI{NLRI: p})
	}
	return all, nil
}

// asTrans is AS_TRANS, which replaces an AS number that does not fit into two bytes (RFC 6793).
const asTrans = 23456

// shortASN returns the two-byte form of an AS number.
func shortASN(asn uint32) uint16 {
	if asn > math.MaxUint16 {
		return asTrans
	}
	return uint16(asn)
}
