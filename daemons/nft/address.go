package nft

import "net/netip"

// Addresses is a single address, or the range from First to Last.
type Addresses struct {
	First, Last netip.Addr // Last is invalid for a single address
}

// One returns a single address.
func One(a netip.Addr) Addresses { return Addresses{First: a} }

// Of returns the addresses of a network.
func Of(p netip.Prefix) Addresses {
	p = p.Masked()
	if p.IsSingleIP() {
		return One(p.Addr())
	}
	return Addresses{p.Addr(), last(p)}
}

// last returns the highest address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		switch ones := p.Bits() - 8*i; {
		case ones <= 0:
			b[i] = 0xff
		case ones < 8:
			b[i] |= 0xff >> ones
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// End returns the last address, also for a single address.
func (a Addresses) End() netip.Addr {
	if a.Last.IsValid() {
		return a.Last
	}
	return a.First
}

func (a Addresses) String() string {
	if !a.Last.IsValid() {
		return a.First.String()
	}
	return a.First.String() + "-" + a.Last.String()
}

func (a Addresses) compare(b Addresses) int {
	if c := a.First.Compare(b.First); c != 0 {
		return c
	}
	return a.End().Compare(b.End())
}
