package nft

import "net/netip"

// Addresses is a single address, or the range from First to Last.
type Addresses struct {
	First, Last netip.Addr // Last is invalid for a single address
}

// SingleAddress returns a single address.
func SingleAddress(a netip.Addr) Addresses { return Addresses{First: a} }

// NetworkAddresses returns the addresses of a network.
func NetworkAddresses(p netip.Prefix) Addresses {
	p = p.Masked()
	if p.IsSingleIP() {
		return SingleAddress(p.Addr())
	}
	return Addresses{p.Addr(), lastAddress(p)}
}

// lastAddress returns the highest address of a network.
func lastAddress(p netip.Prefix) netip.Addr {
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

// LastAddress returns the last address, also for a single address.
func (a Addresses) LastAddress() netip.Addr {
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
	return a.LastAddress().Compare(b.LastAddress())
}
