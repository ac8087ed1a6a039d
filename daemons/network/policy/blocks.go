package policy

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/daemons/nft"
)

// span is the range of addresses from first to last.
type span struct{ first, last netip.Addr }

// blocks are sorted spans that neither overlap nor touch. IPv4 spans come first.
type blocks []span

// readBlock returns the addresses of a block without its exceptions.
func readBlock(b *networkingv1.IPBlock) ([]span, error) {
	p, err := prefix(b.CIDR)
	if err != nil {
		return nil, err
	}
	left := []span{spanOf(p)}
	for _, s := range b.Except {
		p, err := prefix(s)
		if err != nil {
			return nil, err
		}
		var rest []span
		for _, s := range left {
			rest = append(rest, s.without(spanOf(p))...)
		}
		left = rest
	}
	return left, nil
}

func spanOf(p netip.Prefix) span {
	a := nft.Of(p)
	return span{a.First, a.End()}
}

// without returns the parts of s that are not in o.
func (s span) without(o span) (left []span) {
	if s.first.BitLen() != o.first.BitLen() || o.last.Less(s.first) || s.last.Less(o.first) {
		return []span{s}
	}
	if s.first.Less(o.first) {
		left = append(left, span{s.first, o.first.Prev()})
	}
	if o.last.Less(s.last) {
		left = append(left, span{o.last.Next(), s.last})
	}
	return left
}

// merge joins spans that overlap or touch, because the kernel rejects overlapping ranges.
func merge(lists [][]span) (out blocks) {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b span) int { return a.first.Compare(b.first) })
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
func (b blocks) elements(f nft.Family) (list []nft.Element) {
	for _, s := range b {
		if !of(s.first, f) {
			continue
		}
		a := nft.Addresses{First: s.first, Last: s.last}
		if s.first == s.last {
			a = nft.One(s.first)
		}
		list = append(list, nft.Element{Key: nft.Key{Source: a}})
	}
	return list
}

func of(a netip.Addr, f nft.Family) bool { return a.Is4() == (f == nft.IPv4) }
