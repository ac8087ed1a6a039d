// Package nft puts the proxy's rules into the kernel, over netlink and in one
// transaction per change: traffic sees the rules before or after it, never between.
package nft

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/proxy/rules"
)

// Registers. The second and third word of the first one are addressed apart for
// keys made of several fields.
const (
	reg1    = 1
	reg2    = 2
	reg1_01 = 9
	reg1_02 = 10
)

const saddrOffset, daddrOffset = 12, 16 // in the IPv4 header

// encode appends a rule's statements as the kernel's expressions. It may add
// anonymous maps to the transaction.
func (k *Kernel) encode(c *nftables.Conn, rule rules.Rule) ([]expr.Any, error) {
	var e []expr.Any
	for _, s := range rule {
		switch s := s.(type) {
		case rules.From:
			e = append(e, inNet(saddrOffset, s.Net.Addr().AsSlice(), s.Net.Bits(), s.Not)...)
		case rules.To:
			e = append(e, inNet(daddrOffset, s.Net.Addr().AsSlice(), s.Net.Bits(), s.Not)...)
		case rules.FromLocal:
			e = append(e, local(&expr.Fib{Register: reg1, FlagSADDR: true, ResultADDRTYPE: true})...)
		case rules.ToLocal:
			e = append(e, local(&expr.Fib{Register: reg1, FlagDADDR: true, ResultADDRTYPE: true})...)
		case rules.FromSeen:
			e = append(e, load(saddrOffset, 4, reg1), &expr.Lookup{SourceRegister: reg1, SetName: s.Set, SetID: k.sets[s.Set].ID})
		case rules.Protocol:
			e = append(e, protocol(s.Proto)...)
		case rules.Lookup:
			e = append(e, k.lookup(s)...)
		case rules.Random:
			more, err := k.random(c, s)
			if err != nil {
				return nil, err
			}
			e = append(e, more...)
		case rules.Do:
			v, err := verdict(s.Verdict)
			if err != nil {
				return nil, err
			}
			e = append(e, v)
		case rules.Remember:
			e = append(e, load(saddrOffset, 4, reg1), &expr.Dynset{SrcRegKey: reg1, SetName: s.Set, SetID: k.sets[s.Set].ID, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE)})
		case rules.Mark:
			e = append(e, &expr.Meta{Key: expr.MetaKeyMARK, Register: reg1}, bits(^uint32(rules.MarkBit), rules.MarkBit),
				&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg1})
		case rules.Marked:
			e = append(e, &expr.Meta{Key: expr.MetaKeyMARK, Register: reg1}, bits(rules.MarkBit, 0),
				&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: word(0)},
				&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1}, bits(^uint32(0), rules.MarkBit),
				&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg1})
		case rules.Masquerade:
			e = append(e, &expr.Masq{FullyRandom: true})
		case rules.DNAT:
			e = append(e, protocol(s.Proto)...)
			e = append(e, &expr.Immediate{Register: reg1, Data: s.To.Addr().AsSlice()},
				&expr.Immediate{Register: reg2, Data: binary.BigEndian.AppendUint16(nil, s.To.Port())},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: reg1, RegProtoMin: reg2})
		case rules.New:
			e = append(e, &expr.Ct{Key: expr.CtKeySTATE, Register: reg1}, bits(expr.CtStateBitNEW, 0), &expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: word(0)})
		case rules.Reject:
			const portUnreachable = 3
			e = append(e, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable})
		default:
			return nil, fmt.Errorf("encode rule %q: unknown statement %T", rule, s)
		}
	}
	return e, nil
}

func word(v uint32) []byte { return binaryutil.NativeEndian.PutUint32(v) }

func bits(mask, xor uint32) expr.Any {
	return &expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: word(mask), Xor: word(xor)}
}

func load(offset, length, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
}

func inNet(offset uint32, addr []byte, ones int, not bool) []expr.Any {
	op := expr.CmpOpEq
	if not {
		op = expr.CmpOpNeq
	}
	e := []expr.Any{load(offset, 4, reg1)}
	if ones < 32 {
		e = append(e, &expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: net.CIDRMask(ones, 32), Xor: make([]byte, 4)})
	}
	return append(e, &expr.Cmp{Op: op, Register: reg1, Data: addr})
}

func local(fib *expr.Fib) []expr.Any {
	return []expr.Any{fib, &expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: word(unix.RTN_LOCAL)}}
}

func protocol(p uint8) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1}, &expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: []byte{p}}}
}

func (k *Kernel) lookup(s rules.Lookup) []expr.Any {
	const dport = 2 // offset in every transport's header
	port := func(register uint32) expr.Any {
		return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: dport, Len: 2}
	}
	to := &expr.Lookup{SourceRegister: reg1, DestRegister: 0, IsDestRegSet: true, SetName: s.Map, SetID: k.maps[s.Map].ID}
	if s.Key == rules.ProtoPort {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1}, port(reg1_01), to}
	}
	return []expr.Any{load(daddrOffset, 4, reg1), &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1_01}, port(reg1_02), to}
}

// perMessage is how many elements go into one message, which is at most 64 KiB.
const perMessage = 250

func (k *Kernel) random(c *nftables.Conn, s rules.Random) ([]expr.Any, error) {
	set := &nftables.Set{Table: k.table, Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeInteger, DataType: nftables.TypeVerdict}
	elements := make([]nftables.SetElement, len(s.Chains))
	for i, chain := range s.Chains {
		elements[i] = nftables.SetElement{Key: word(uint32(i)), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
	}
	if len(elements) <= perMessage {
		if err := c.AddSet(set, elements); err != nil {
			return nil, err
		}
	} else {
		if err := c.AddSet(set, nil); err != nil {
			return nil, err
		}
		// Until a rule uses it, elements can be added; the library refuses to.
		set.Anonymous = false
		err := inParts(elements, func(part []nftables.SetElement) error { return c.SetAddElements(set, part) })
		set.Anonymous = true
		if err != nil {
			return nil, err
		}
	}
	return []expr.Any{
		&expr.Numgen{Register: reg1, Modulus: uint32(len(s.Chains)), Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: reg1, DestRegister: 0, IsDestRegSet: true, SetName: set.Name, SetID: set.ID},
	}, nil
}

func inParts(elements []nftables.SetElement, do func([]nftables.SetElement) error) error {
	for len(elements) > 0 {
		n := min(len(elements), perMessage)
		if err := do(elements[:n]); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

func verdict(v rules.Verdict) (*expr.Verdict, error) {
	switch v.Action {
	case "goto":
		return &expr.Verdict{Kind: expr.VerdictGoto, Chain: v.Chain}, nil
	case "jump":
		return &expr.Verdict{Kind: expr.VerdictJump, Chain: v.Chain}, nil
	case "drop":
		return &expr.Verdict{Kind: expr.VerdictDrop}, nil
	case "return":
		return &expr.Verdict{Kind: expr.VerdictReturn}, nil
	}
	return nil, fmt.Errorf("unknown verdict %q", v.Action)
}

// key returns a destination as the kernel compares it: every field in words.
func key(kind rules.Key, d rules.Dest) []byte {
	var b []byte
	if kind == rules.AddrProtoPort {
		b = append(b, d.Addr.AsSlice()...)
	}
	b = append(b, d.Proto, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, d.Port)
	return append(b, 0, 0)
}
