package policy

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/daemons/nft"
)

// addressRange is the range of addresses from first to last.
type addressRange struct{ first, last netip.Addr }

// rangeList are sorted spans that neither overlap nor touch. IPv4 spans come first.
type rangeList []addressRange

// parseBlock returns the addresses of a block without its exceptions.
func parseBlock(b *networkingv1.IPBlock) ([]addressRange, error) {
	p, err := parsePrefix(b.CIDR)
	if err != nil {
		return nil, err
	}
	left := []addressRange{rangeOf(p)}
	for _, s := range b.Except {
		p, err := parsePrefix(s)
		if err != nil {
			return nil, err
		}
		var rest []addressRange
		for _, s := range left {
			rest = append(rest, s.subtract(rangeOf(p))...)
		}
		left = rest
	}
	return left, nil
}

func rangeOf(p netip.Prefix) addressRange {
	a := nft.NetworkAddresses(p)
	return addressRange{a.First, a.LastAddress()}
}

// subtract returns the parts of s that are not in o.
func (s addressRange) subtract(o addressRange) (left []addressRange) {
	if s.first.BitLen() != o.first.BitLen() || o.last.Less(s.first) || s.last.Less(o.first) {
		return []addressRange{s}
	}
	if s.first.Less(o.first) {
		left = append(left, addressRange{s.first, o.first.Prev()})
	}
	if o.last.Less(s.last) {
		left = append(left, addressRange{o.last.Next(), s.last})
	}
	return left
}

// mergeRanges joins spans that overlap or touch, because the kernel rejects overlapping ranges.
func mergeRanges(lists [][]addressRange) (out rangeList) {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b addressRange) int { return a.first.Compare(b.first) })
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].first.BitLen() == s.first.BitLen() {
			if after := out[n-1].last.Next(); !after.IsValid() || s.first.Compare(after) <= 0 {
				if out[n-1].last.Less(s.last) {
					out[n-1].last = s.last
				}
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// elements returns the spans of a family as elements of a set of ranges.
func (b rangeList) elements(f nft.Family) (list []nft.Element) {
	for _, s := range b {
		if !isOfFamily(s.first, f) {
			continue
		}
		a := nft.Addresses{First: s.first, Last: s.last}
		if s.first == s.last {
			a = nft.SingleAddress(s.first)
		}
		list = append(list, nft.Element{Key: nft.Key{Source: a}})
	}
	return list
}

func isOfFamily(a netip.Addr, f nft.Family) bool { return a.Is4() == (f == nft.IPv4) }
