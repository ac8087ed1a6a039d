package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// first is the first 32-bit register of the kernel. Keys with several fields occupy consecutive registers.
const first = unix.NFT_REG32_00

// These are offsets in packet headers, in bytes, and a flag.
const (
	dport      = 2 // in all transport headers
	saddr4     = 12
	daddr4     = 16
	saddr6     = 8
	daddr6     = 24
	ttl4       = 8
	hopLimit6  = 7
	masqRandom = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
)

// statement encodes a statement as kernel expressions. id identifies the anonymous map of the statement.
func (b *batch) statement(s nft.Stmt, id uint32) error {
	switch s := s.(type) {
	case nft.From:
		return b.inNet(nft.Source, s.Net, s.Not)
	case nft.To:
		return b.inNet(nft.Destination, s.Net, s.Not)
	case nft.FromLocal:
		b.local(unix.NFTA_FIB_F_SADDR)
	case nft.ToLocal:
		b.local(unix.NFTA_FIB_F_DADDR)
	case nft.Astray:
		b.astray()
	case nft.In:
		b.loadKey(s.Key)
		b.expression("lookup", func() {
			b.text(unix.NFTA_LOOKUP_SET, s.Set)
			b.number(unix.NFTA_LOOKUP_SREG, first)
			if s.Not {
				b.number(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
			}
		})
	case nft.Lookup:
		b.loadKey(s.Key)
		b.lookup(s.Map, 0, unix.NFT_REG_VERDICT)
	case nft.Is:
		b.loadMeta(unix.NFT_META_L4PROTO, first)
		b.compare(unix.NFT_CMP_EQ, []byte{s.Protocol})
	case nft.ToPorts:
		b.ports(s)
	case nft.ICMPv6Types:
		b.load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1, first)
		b.between([]byte{s.First}, []byte{s.Last})
	case nft.OnLink:
		b.load(unix.NFT_PAYLOAD_NETWORK_HEADER, b.hopLimit(), 1, first)
		b.compare(unix.NFT_CMP_EQ, []byte{255})
	case nft.Through:
		b.loadMeta(unix.NFT_META_IIFNAME, first)
		b.compare(operator(s.Not), []byte(s.Prefix))
	case nft.Random:
		b.choose(len(s.Chains), first)
		b.lookup(anonymousName, id, unix.NFT_REG_VERDICT)
	case nft.RandomTo:
		b.choose(len(s.To), first)
		b.lookup(anonymousName, id, first)
		b.dnat()
	case nft.Note:
		b.loadKey(s.Key)
		b.lookup(s.Map, 0, first)
		b.setMeta(unix.NFT_META_PRIORITY)
	case nft.ByNote:
		b.loadMeta(unix.NFT_META_PRIORITY, first)
		b.lookup(anonymousName, id, unix.NFT_REG_VERDICT)
	case nft.Unnote:
		b.immediate(first, word(0))
		b.setMeta(unix.NFT_META_PRIORITY)
	case nft.RandomOf:
		index := b.loadKey(s.Key)
		if s.Of == 1 {
			b.immediate(index, word(0))
		} else {
			b.choose(s.Of, index)
		}
		b.lookup(s.Map, 0, first)
		b.dnat()
	case nft.DNAT:
		if s.To.Addr().Is4() != (b.family == nft.IPv4) {
			return fmt.Errorf("%s is not of the table's family", s.To)
		}
		b.immediate(first, s.To.Addr().AsSlice())
		b.immediate(first+b.addressBytes()/4, binary.BigEndian.AppendUint16(nil, s.To.Port()))
		b.dnat()
	case nft.Redirect:
		b.immediate(first, binary.BigEndian.AppendUint16(nil, s.Port))
		b.expression("redir", func() { b.number(unix.NFTA_REDIR_REG_PROTO_MIN, first) })
	case nft.Untranslated:
		b.expression("ct", func() {
			b.number(unix.NFTA_CT_DREG, first)
			b.number(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS)
		})
		b.bits(statusTranslated, 0)
		b.compare(unix.NFT_CMP_EQ, word(0))
	case nft.Reply:
		b.expression("ct", func() {
			b.number(unix.NFTA_CT_DREG, first)
			b.number(unix.NFTA_CT_KEY, unix.NFT_CT_DIRECTION)
		})
		b.compare(unix.NFT_CMP_EQ, []byte{directionReply})
	case nft.Do:
		if _, known := verdicts[s.Action]; !known {
			return fmt.Errorf("unknown verdict %q", s.Action)
		}
		b.expression("immediate", func() {
			b.number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
			at := b.nest(unix.NFTA_IMMEDIATE_DATA)
			b.verdict(s.Verdict)
			b.shut(at)
		})
	case nft.Remember:
		b.loadKey([]nft.Field{nft.Source})
		b.expression("dynset", func() {
			b.text(unix.NFTA_DYNSET_SET_NAME, s.Set)
			b.number(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
			b.number(unix.NFTA_DYNSET_SREG_KEY, first)
			b.long(unix.NFTA_DYNSET_TIMEOUT, uint64(s.Seconds)*1000)
		})
	case nft.Mark:
		b.loadMeta(unix.NFT_META_MARK, first)
		b.bits(^s.Bits, s.Bits)
		b.setMeta(unix.NFT_META_MARK)
	case nft.Marked:
		b.loadMeta(unix.NFT_META_MARK, first)
		b.bits(s.Bits, 0)
		b.compare(unix.NFT_CMP_NEQ, word(0))
		b.loadMeta(unix.NFT_META_MARK, first)
		b.bits(^uint32(0), s.Bits)
		b.setMeta(unix.NFT_META_MARK)
	case nft.Masquerade:
		b.expression("masq", func() { b.number(unix.NFTA_MASQ_FLAGS, masqRandom) })
	case nft.Reject:
		const portUnreachable4, portUnreachable6 = 3, 4
		b.expression("reject", func() {
			b.number(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
			code := byte(portUnreachable4)
			if b.family == nft.IPv6 {
				code = portUnreachable6
			}
			b.data(unix.NFTA_REJECT_ICMP_CODE, []byte{code})
		})
	case nft.First:
		b.state(stateNew)
	case nft.Known:
		b.state(stateEstablished | stateRelated)
	default:
		return fmt.Errorf("unknown statement %T", s)
	}
	return nil
}

// directionReply is the conntrack direction of responses.
const directionReply = 1

// These are bits of conntrack states.
const (
	stateEstablished = 1 << 1
	stateRelated     = 1 << 2
	stateNew         = 1 << 3
	// statusTranslated is the bit of the conntrack status that the destination was changed.
	statusTranslated = 1 << 5
)

// notes is added to numbers that rules store in the packet's priority. Nothing reads the priority before the packet
// leaves the machine, and other programs' priorities are small. All other fields that a rule can set have a meaning.
// Using the result of one lookup as the key of another would need no field, but nft cannot print such rules.
const notes = 0x4b500000

func (b *batch) expression(name string, data func()) {
	at := b.nest(unix.NFTA_LIST_ELEM)
	b.text(unix.NFTA_EXPR_NAME, name)
	in := b.nest(unix.NFTA_EXPR_DATA)
	data()
	b.shut(in)
	b.shut(at)
}

func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func operator(not bool) uint32 {
	if not {
		return unix.NFT_CMP_NEQ
	}
	return unix.NFT_CMP_EQ
}

func (b *batch) compare(op uint32, with []byte) {
	b.expression("cmp", func() {
		b.number(unix.NFTA_CMP_SREG, first)
		b.number(unix.NFTA_CMP_OP, op)
		b.value(unix.NFTA_CMP_DATA, with)
	})
}

func (b *batch) loadMeta(key, register uint32) {
	b.expression("meta", func() {
		b.number(unix.NFTA_META_DREG, register)
		b.number(unix.NFTA_META_KEY, key)
	})
}

func (b *batch) setMeta(key uint32) {
	b.expression("meta", func() {
		b.number(unix.NFTA_META_SREG, first)
		b.number(unix.NFTA_META_KEY, key)
	})
}

func (b *batch) load(base, offset, length, register uint32) {
	b.expression("payload", func() {
		b.number(unix.NFTA_PAYLOAD_DREG, register)
		b.number(unix.NFTA_PAYLOAD_BASE, base)
		b.number(unix.NFTA_PAYLOAD_OFFSET, offset)
		b.number(unix.NFTA_PAYLOAD_LEN, length)
	})
}

// hopLimit returns the offset of the TTL or hop limit.
func (b *batch) hopLimit() uint32 {
	if b.family == nft.IPv6 {
		return hopLimit6
	}
	return ttl4
}

func (b *batch) loadAddress(f nft.Field, register uint32) {
	offset := map[nft.Field]uint32{nft.Source: saddr4, nft.Destination: daddr4}[f]
	if b.family == nft.IPv6 {
		offset = map[nft.Field]uint32{nft.Source: saddr6, nft.Destination: daddr6}[f]
	}
	b.load(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, b.addressBytes(), register)
}

// loadKey loads the fields of a key into consecutive registers, and returns the next register.
func (b *batch) loadKey(key []nft.Field) (register uint32) {
	register = first
	for _, f := range key {
		switch f {
		case nft.Source, nft.Destination:
			b.loadAddress(f, register)
			register += b.addressBytes() / 4
		case nft.Protocol:
			b.loadMeta(unix.NFT_META_L4PROTO, register)
			register++
		case nft.Port:
			b.load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, dport, 2, register)
			register++
		}
	}
	return register
}

func (b *batch) lookup(set string, id, into uint32) {
	b.expression("lookup", func() {
		b.text(unix.NFTA_LOOKUP_SET, set)
		b.number(unix.NFTA_LOOKUP_SREG, first)
		b.number(unix.NFTA_LOOKUP_DREG, into)
		if id != 0 {
			b.number(unix.NFTA_LOOKUP_SET_ID, id)
		}
	})
}

func (b *batch) inNet(f nft.Field, p netip.Prefix, not bool) error {
	if p.Addr().Is4() != (b.family == nft.IPv4) {
		return fmt.Errorf("%s is not of the table's family", p)
	}
	b.loadAddress(f, first)
	if !p.IsSingleIP() {
		bytes := int(b.addressBytes())
		b.expression("bitwise", func() {
			b.number(unix.NFTA_BITWISE_SREG, first)
			b.number(unix.NFTA_BITWISE_DREG, first)
			b.number(unix.NFTA_BITWISE_LEN, uint32(bytes))
			b.value(unix.NFTA_BITWISE_MASK, net.CIDRMask(p.Bits(), 8*bytes))
			b.value(unix.NFTA_BITWISE_XOR, make([]byte, bytes))
		})
	}
	b.compare(operator(not), p.Masked().Addr().AsSlice())
	return nil
}

func (b *batch) bits(mask, xor uint32) {
	b.expression("bitwise", func() {
		b.number(unix.NFTA_BITWISE_SREG, first)
		b.number(unix.NFTA_BITWISE_DREG, first)
		b.number(unix.NFTA_BITWISE_LEN, 4)
		b.value(unix.NFTA_BITWISE_MASK, word(mask))
		b.value(unix.NFTA_BITWISE_XOR, word(xor))
	})
}

func (b *batch) local(flag uint32) {
	b.expression("fib", func() {
		b.number(unix.NFTA_FIB_DREG, first)
		b.number(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
		b.number(unix.NFTA_FIB_FLAGS, flag)
	})
	b.compare(unix.NFT_CMP_EQ, word(unix.RTN_LOCAL))
}

// astray matches if no route to the sender uses the interface by which the packet arrived.
func (b *batch) astray() {
	b.expression("fib", func() {
		b.number(unix.NFTA_FIB_DREG, first)
		b.number(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_OIF)
		b.number(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_SADDR|unix.NFTA_FIB_F_IIF)
	})
	b.compare(unix.NFT_CMP_EQ, word(0))
}

func (b *batch) state(bits uint32) {
	b.expression("ct", func() {
		b.number(unix.NFTA_CT_DREG, first)
		b.number(unix.NFTA_CT_KEY, unix.NFT_CT_STATE)
	})
	b.bits(bits, 0)
	b.compare(unix.NFT_CMP_NEQ, word(0))
}

func (b *batch) ports(s nft.ToPorts) {
	b.load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, dport, 2, first)
	if s.First == s.Last {
		b.compare(unix.NFT_CMP_EQ, binary.BigEndian.AppendUint16(nil, s.First))
		return
	}
	b.between(binary.BigEndian.AppendUint16(nil, s.First), binary.BigEndian.AppendUint16(nil, s.Last))
}

func (b *batch) between(least, most []byte) {
	b.expression("range", func() {
		b.number(unix.NFTA_RANGE_SREG, first)
		b.number(unix.NFTA_RANGE_OP, unix.NFT_RANGE_EQ)
		b.value(unix.NFTA_RANGE_FROM_DATA, least)
		b.value(unix.NFTA_RANGE_TO_DATA, most)
	})
}

// choose loads a random number below n into a register.
func (b *batch) choose(n int, into uint32) {
	b.expression("numgen", func() {
		b.number(unix.NFTA_NG_DREG, into)
		b.number(unix.NFTA_NG_MODULUS, uint32(n))
		b.number(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM)
	})
}

func (b *batch) immediate(register uint32, value []byte) {
	b.expression("immediate", func() {
		b.number(unix.NFTA_IMMEDIATE_DREG, register)
		b.value(unix.NFTA_IMMEDIATE_DATA, value)
	})
}

// dnat translates the destination to the address and port in the first registers.
func (b *batch) dnat() {
	b.expression("nat", func() {
		b.number(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		b.number(unix.NFTA_NAT_FAMILY, uint32(b.family))
		b.number(unix.NFTA_NAT_REG_ADDR_MIN, first)
		b.number(unix.NFTA_NAT_REG_PROTO_MIN, first+b.addressBytes()/4)
	})
}
