package load

import (
	"fmt"
	"math/big"
	"net"
	"net/netip"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

var prefixParam = function.Parameter{Name: "prefix", Type: cty.String}

// cidrHostFunc is cidrhost(prefix, n): address number n of the prefix. A negative number counts from the end.
var cidrHostFunc = function.New(&function.Spec{
	Params: []function.Parameter{prefixParam, {Name: "hostnum", Type: cty.Number}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		p, err := netip.ParsePrefix(a[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		n, err := toInteger(a[1], 1)
		if err != nil {
			return cty.NilVal, err
		}
		bits := p.Addr().BitLen() - p.Bits()
		size := new(big.Int).Lsh(big.NewInt(1), uint(bits))
		if n.Sign() < 0 {
			n = new(big.Int).Add(size, n)
		}
		if n.Sign() < 0 || n.Cmp(size) >= 0 {
			return cty.NilVal, function.NewArgErrorf(1, "prefix %s has no such address", p)
		}
		return cty.StringVal(addToAddress(p.Masked().Addr(), n).String()), nil
	},
})

var cidrNetmaskFunc = textFunc(1, func(a []string) (string, error) {
	p, err := netip.ParsePrefix(a[0])
	if err != nil {
		return "", err
	}
	if !p.Addr().Is4() {
		return "", fmt.Errorf("only IPv4 prefixes have a netmask")
	}
	return net.IP(net.CIDRMask(p.Bits(), 32)).String(), nil
})

// cidrSubnetFunc is cidrsubnet(prefix, newbits, n): subnet number n of the prefix extended by newbits.
var cidrSubnetFunc = function.New(&function.Spec{
	Params: []function.Parameter{prefixParam, {Name: "newbits", Type: cty.Number}, {Name: "netnum", Type: cty.Number}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		p, err := netip.ParsePrefix(a[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		newBits, err := extensionBits(p, a[1], 0, 1)
		if err != nil {
			return cty.NilVal, err
		}
		n, err := toInteger(a[2], 2)
		if err != nil {
			return cty.NilVal, err
		}
		length := p.Bits() + newBits
		if n.Sign() < 0 || n.BitLen() > newBits {
			return cty.NilVal, function.NewArgErrorf(2, "%d bits have no piece number %s", newBits, n)
		}
		offset := new(big.Int).Lsh(n, uint(p.Addr().BitLen()-length))
		return cty.StringVal(netip.PrefixFrom(addToAddress(p.Masked().Addr(), offset), length).String()), nil
	},
})

// cidrSubnetsFunc is cidrsubnets(prefix, newbits...): consecutive subnets.
var cidrSubnetsFunc = function.New(&function.Spec{
	Params:   []function.Parameter{prefixParam},
	VarParam: &function.Parameter{Name: "newbits", Type: cty.Number},
	Type:     function.StaticReturnType(cty.List(cty.String)),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		p, err := netip.ParsePrefix(a[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		width := p.Addr().BitLen()
		next := new(big.Int)
		end := new(big.Int).Lsh(big.NewInt(1), uint(width-p.Bits()))
		pieces := []cty.Value{}
		for i, arg := range a[1:] {
			newBits, err := extensionBits(p, arg, 1, i+1)
			if err != nil {
				return cty.NilVal, err
			}
			length := p.Bits() + newBits
			size := new(big.Int).Lsh(big.NewInt(1), uint(width-length))
			// Round up to the next boundary of a subnet of this size.
			next.Add(next, new(big.Int).Sub(size, big.NewInt(1)))
			next.AndNot(next, new(big.Int).Sub(size, big.NewInt(1)))
			if new(big.Int).Add(next, size).Cmp(end) > 0 {
				return cty.NilVal, function.NewArgErrorf(i+1, "%s has no room left for a /%d", p, length)
			}
			pieces = append(pieces,
				cty.StringVal(netip.PrefixFrom(addToAddress(p.Masked().Addr(), next), length).String()))
			next.Add(next, size)
		}
		if len(pieces) == 0 {
			return cty.ListValEmpty(cty.String), nil
		}
		return cty.ListVal(pieces), nil
	},
})

// maxBits is the maximum number of bits of a number in a calculation with addresses. IPv6 addresses have 128 bits.
const maxBits = 256

// toInteger returns a number as an integer. It returns an error for a fraction, and for a number that is larger than
// any network. arg is the index of the argument.
func toInteger(v cty.Value, arg int) (*big.Int, error) {
	f := v.AsBigFloat()
	if !f.IsInt() {
		return nil, function.NewArgErrorf(arg, "must be a whole number")
	}
	if f.MantExp(nil) > maxBits {
		return nil, function.NewArgErrorf(arg, "is larger than any network")
	}
	n, _ := f.Int(nil)
	return n, nil
}

// extensionBits returns the number of bits by which to extend a prefix. It returns an error if the number is less than
// minimum or more than the address has left. arg is the index of the argument.
func extensionBits(p netip.Prefix, v cty.Value, minimum int64, arg int) (int, error) {
	n, err := toInteger(v, arg)
	if err != nil {
		return 0, err
	}
	if maximum := p.Addr().BitLen() - p.Bits(); n.Cmp(big.NewInt(minimum)) < 0 ||
		n.Cmp(big.NewInt(int64(maximum))) > 0 {
		return 0, function.NewArgErrorf(arg, "%s cannot be extended by %s bits", p, n)
	}
	return int(n.Int64()), nil
}

func addToAddress(addr netip.Addr, n *big.Int) netip.Addr {
	raw := addr.AsSlice()
	sum := new(big.Int).Add(new(big.Int).SetBytes(raw), n)
	out, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, len(raw))))
	return out
}
