package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// firstRegister is the first 32-bit register of the kernel. Keys with several fields occupy consecutive registers.
const firstRegister = unix.NFT_REG32_00

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

// addStatement encodes a statement as kernel expressions. id identifies the anonymous map of the statement.
func (b *batch) addStatement(s nft.Stmt, id uint32) error {
	switch s := s.(type) {
	case nft.FromNet:
		return b.matchNetwork(nft.Source, s.Net, s.Not)
	case nft.ToNet:
		return b.matchNetwork(nft.Destination, s.Net, s.Not)
	case nft.FromLocal:
		b.matchLocal(unix.NFTA_FIB_F_SADDR)
	case nft.ToLocal:
		b.matchLocal(unix.NFTA_FIB_F_DADDR)
	case nft.WrongInterface:
		b.matchWrongInterface()
	case nft.InSet:
		b.matchSet(s)
	case nft.Lookup:
		b.loadKey(s.Key)
		b.addLookup(s.Map, 0, unix.NFT_REG_VERDICT)
	case nft.IsProtocol:
		b.loadMeta(unix.NFT_META_L4PROTO, firstRegister)
		b.addCompare(unix.NFT_CMP_EQ, []byte{s.Protocol})
	case nft.ToPorts:
		b.matchPorts(s)
	case nft.ICMPv6Types:
		b.load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1, firstRegister)
		b.matchRange([]byte{s.First}, []byte{s.Last})
	case nft.OnLink:
		b.load(unix.NFT_PAYLOAD_NETWORK_HEADER, b.hopLimitOffset(), 1, firstRegister)
		b.addCompare(unix.NFT_CMP_EQ, []byte{255})
	case nft.FromInterface:
		b.loadMeta(unix.NFT_META_IIFNAME, firstRegister)
		b.addCompare(compareOperator(s.Not), []byte(s.Prefix))
	case nft.Random:
		b.loadRandom(len(s.Chains), firstRegister)
		b.addLookup(anonymousName, id, unix.NFT_REG_VERDICT)
	case nft.RandomTo:
		b.loadRandom(len(s.To), firstRegister)
		b.addLookup(anonymousName, id, firstRegister)
		b.addDNAT()
	case nft.StoreNumber:
		b.loadKey(s.Key)
		b.addLookup(s.Map, 0, firstRegister)
		b.setMeta(unix.NFT_META_PRIORITY)
	case nft.GotoStored:
		b.loadMeta(unix.NFT_META_PRIORITY, firstRegister)
		b.addLookup(anonymousName, id, unix.NFT_REG_VERDICT)
	case nft.ClearStored:
		b.loadValue(firstRegister, nativeUint32(0))
		b.setMeta(unix.NFT_META_PRIORITY)
	case nft.RandomFrom:
		b.translateToRandom(s)
	case nft.DNAT:
		return b.translateTo(s)
	case nft.Redirect:
		b.loadValue(firstRegister, binary.BigEndian.AppendUint16(nil, s.Port))
		b.addExpression("redir", func() { b.addUint32(unix.NFTA_REDIR_REG_PROTO_MIN, firstRegister) })
	case nft.Untranslated:
		b.matchUntranslated()
	case nft.Reply:
		b.matchReply()
	case nft.Decide:
		return b.decide(s)
	case nft.AddSource:
		b.addSource(s)
	case nft.Mark:
		b.mark(s)
	case nft.Marked:
		b.matchMark(s)
	case nft.Masquerade:
		b.addExpression("masq", func() { b.addUint32(unix.NFTA_MASQ_FLAGS, masqRandom) })
	case nft.Reject:
		b.reject()
	case nft.NewConnection:
		b.matchState(stateNew)
	case nft.EstablishedConnection:
		b.matchState(stateEstablished | stateRelated)
	default:
		return fmt.Errorf("unknown statement %T", s)
	}
	return nil
}

// matchSet matches packets whose key is in a set, or is not.
func (b *batch) matchSet(s nft.InSet) {
	b.loadKey(s.Key)
	b.addExpression("lookup", func() {
		b.addText(unix.NFTA_LOOKUP_SET, s.Set)
		b.addUint32(unix.NFTA_LOOKUP_SREG, firstRegister)
		if s.Not {
			b.addUint32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
		}
	})
}

// translateToRandom translates the destination to a random value of a map.
func (b *batch) translateToRandom(s nft.RandomFrom) {
	index := b.loadKey(s.Key)
	if s.Count == 1 {
		b.loadValue(index, nativeUint32(0))
	} else {
		b.loadRandom(s.Count, index)
	}
	b.addLookup(s.Map, 0, firstRegister)
	b.addDNAT()
}

// translateTo translates the destination to a fixed address and port.
func (b *batch) translateTo(s nft.DNAT) error {
	if s.To.Addr().Is4() != (b.family == nft.IPv4) {
		return fmt.Errorf("%s is not of the table's family", s.To)
	}
	b.loadValue(firstRegister, s.To.Addr().AsSlice())
	b.loadValue(firstRegister+b.addressBytes()/4, binary.BigEndian.AppendUint16(nil, s.To.Port()))
	b.addDNAT()
	return nil
}

// matchUntranslated matches packets of connections whose addresses are not translated.
func (b *batch) matchUntranslated() {
	b.addExpression("ct", func() {
		b.addUint32(unix.NFTA_CT_DREG, firstRegister)
		b.addUint32(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS)
	})
	b.addBitwise(statusTranslated, 0)
	b.addCompare(unix.NFT_CMP_EQ, nativeUint32(0))
}

// matchReply matches packets in the direction of responses.
func (b *batch) matchReply() {
	b.addExpression("ct", func() {
		b.addUint32(unix.NFTA_CT_DREG, firstRegister)
		b.addUint32(unix.NFTA_CT_KEY, unix.NFT_CT_DIRECTION)
	})
	b.addCompare(unix.NFT_CMP_EQ, []byte{directionReply})
}

// decide ends a rule with a verdict.
func (b *batch) decide(s nft.Decide) error {
	if _, ok := verdicts[s.Action]; !ok {
		return fmt.Errorf("unknown verdict %q", s.Action)
	}
	b.addExpression("immediate", func() {
		b.addUint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		at := b.openNested(unix.NFTA_IMMEDIATE_DATA)
		b.addVerdict(s.Verdict)
		b.closeAttr(at)
	})
	return nil
}

// addSource adds the source address to a set, or extends its time there.
func (b *batch) addSource(s nft.AddSource) {
	b.loadKey([]nft.Field{nft.Source})
	b.addExpression("dynset", func() {
		b.addText(unix.NFTA_DYNSET_SET_NAME, s.Set)
		b.addUint32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
		b.addUint32(unix.NFTA_DYNSET_SREG_KEY, firstRegister)
		b.addUint64(unix.NFTA_DYNSET_TIMEOUT, uint64(s.Timeout)*1000)
	})
}

// mark sets bits of the mark of a packet.
func (b *batch) mark(s nft.Mark) {
	b.loadMeta(unix.NFT_META_MARK, firstRegister)
	b.addBitwise(^s.Bits, s.Bits)
	b.setMeta(unix.NFT_META_MARK)
}

// matchMark matches packets with a bit of the mark, and clears the bits.
func (b *batch) matchMark(s nft.Marked) {
	b.loadMeta(unix.NFT_META_MARK, firstRegister)
	b.addBitwise(s.Bits, 0)
	b.addCompare(unix.NFT_CMP_NEQ, nativeUint32(0))
	b.loadMeta(unix.NFT_META_MARK, firstRegister)
	b.addBitwise(^uint32(0), s.Bits)
	b.setMeta(unix.NFT_META_MARK)
}

// reject answers that the port is unreachable.
func (b *batch) reject() {
	const portUnreachable4, portUnreachable6 = 3, 4
	b.addExpression("reject", func() {
		b.addUint32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
		code := byte(portUnreachable4)
		if b.family == nft.IPv6 {
			code = portUnreachable6
		}
		b.addBytes(unix.NFTA_REJECT_ICMP_CODE, []byte{code})
	})
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

// storedBase is added to numbers that rules store in the packet's priority. Nothing reads the priority before the
// packet leaves the machine, and other programs' priorities are small. All other fields that a rule can set have a
// meaning. Using the result of one lookup as the key of another would need no field, but nft cannot print such rules.
const storedBase = 0x4b500000

func (b *batch) addExpression(name string, data func()) {
	at := b.openNested(unix.NFTA_LIST_ELEM)
	b.addText(unix.NFTA_EXPR_NAME, name)
	in := b.openNested(unix.NFTA_EXPR_DATA)
	data()
	b.closeAttr(in)
	b.closeAttr(at)
}

func nativeUint32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func compareOperator(not bool) uint32 {
	if not {
		return unix.NFT_CMP_NEQ
	}
	return unix.NFT_CMP_EQ
}

func (b *batch) addCompare(op uint32, with []byte) {
	b.addExpression("cmp", func() {
		b.addUint32(unix.NFTA_CMP_SREG, firstRegister)
		b.addUint32(unix.NFTA_CMP_OP, op)
		b.addRegisterValue(unix.NFTA_CMP_DATA, with)
	})
}

func (b *batch) loadMeta(key, register uint32) {
	b.addExpression("meta", func() {
		b.addUint32(unix.NFTA_META_DREG, register)
		b.addUint32(unix.NFTA_META_KEY, key)
	})
}

func (b *batch) setMeta(key uint32) {
	b.addExpression("meta", func() {
		b.addUint32(unix.NFTA_META_SREG, firstRegister)
		b.addUint32(unix.NFTA_META_KEY, key)
	})
}

func (b *batch) load(base, offset, length, register uint32) {
	b.addExpression("payload", func() {
		b.addUint32(unix.NFTA_PAYLOAD_DREG, register)
		b.addUint32(unix.NFTA_PAYLOAD_BASE, base)
		b.addUint32(unix.NFTA_PAYLOAD_OFFSET, offset)
		b.addUint32(unix.NFTA_PAYLOAD_LEN, length)
	})
}

// hopLimitOffset returns the offset of the TTL or hop limit.
func (b *batch) hopLimitOffset() uint32 {
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
	register = firstRegister
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

func (b *batch) addLookup(set string, id, into uint32) {
	b.addExpression("lookup", func() {
		b.addText(unix.NFTA_LOOKUP_SET, set)
		b.addUint32(unix.NFTA_LOOKUP_SREG, firstRegister)
		b.addUint32(unix.NFTA_LOOKUP_DREG, into)
		if id != 0 {
			b.addUint32(unix.NFTA_LOOKUP_SET_ID, id)
		}
	})
}

func (b *batch) matchNetwork(f nft.Field, p netip.Prefix, not bool) error {
	if p.Addr().Is4() != (b.family == nft.IPv4) {
		return fmt.Errorf("%s is not of the table's family", p)
	}
	b.loadAddress(f, firstRegister)
	if !p.IsSingleIP() {
		bytes := int(b.addressBytes())
		b.addExpression("bitwise", func() {
			b.addUint32(unix.NFTA_BITWISE_SREG, firstRegister)
			b.addUint32(unix.NFTA_BITWISE_DREG, firstRegister)
			b.addUint32(unix.NFTA_BITWISE_LEN, uint32(bytes))
			b.addRegisterValue(unix.NFTA_BITWISE_MASK, net.CIDRMask(p.Bits(), 8*bytes))
			b.addRegisterValue(unix.NFTA_BITWISE_XOR, make([]byte, bytes))
		})
	}
	b.addCompare(compareOperator(not), p.Masked().Addr().AsSlice())
	return nil
}

func (b *batch) addBitwise(mask, xor uint32) {
	b.addExpression("bitwise", func() {
		b.addUint32(unix.NFTA_BITWISE_SREG, firstRegister)
		b.addUint32(unix.NFTA_BITWISE_DREG, firstRegister)
		b.addUint32(unix.NFTA_BITWISE_LEN, 4)
		b.addRegisterValue(unix.NFTA_BITWISE_MASK, nativeUint32(mask))
		b.addRegisterValue(unix.NFTA_BITWISE_XOR, nativeUint32(xor))
	})
}

func (b *batch) matchLocal(flag uint32) {
	b.addExpression("fib", func() {
		b.addUint32(unix.NFTA_FIB_DREG, firstRegister)
		b.addUint32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
		b.addUint32(unix.NFTA_FIB_FLAGS, flag)
	})
	b.addCompare(unix.NFT_CMP_EQ, nativeUint32(unix.RTN_LOCAL))
}

// matchWrongInterface matches if no route to the sender uses the interface by which the packet arrived.
func (b *batch) matchWrongInterface() {
	b.addExpression("fib", func() {
		b.addUint32(unix.NFTA_FIB_DREG, firstRegister)
		b.addUint32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_OIF)
		b.addUint32(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_SADDR|unix.NFTA_FIB_F_IIF)
	})
	b.addCompare(unix.NFT_CMP_EQ, nativeUint32(0))
}

func (b *batch) matchState(bits uint32) {
	b.addExpression("ct", func() {
		b.addUint32(unix.NFTA_CT_DREG, firstRegister)
		b.addUint32(unix.NFTA_CT_KEY, unix.NFT_CT_STATE)
	})
	b.addBitwise(bits, 0)
	b.addCompare(unix.NFT_CMP_NEQ, nativeUint32(0))
}

func (b *batch) matchPorts(s nft.ToPorts) {
	b.load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, dport, 2, firstRegister)
	if s.First == s.Last {
		b.addCompare(unix.NFT_CMP_EQ, binary.BigEndian.AppendUint16(nil, s.First))
		return
	}
	b.matchRange(binary.BigEndian.AppendUint16(nil, s.First), binary.BigEndian.AppendUint16(nil, s.Last))
}

func (b *batch) matchRange(minimum, maximum []byte) {
	b.addExpression("range", func() {
		b.addUint32(unix.NFTA_RANGE_SREG, firstRegister)
		b.addUint32(unix.NFTA_RANGE_OP, unix.NFT_RANGE_EQ)
		b.addRegisterValue(unix.NFTA_RANGE_FROM_DATA, minimum)
		b.addRegisterValue(unix.NFTA_RANGE_TO_DATA, maximum)
	})
}

// loadRandom loads a random number below n into a register.
func (b *batch) loadRandom(n int, into uint32) {
	b.addExpression("numgen", func() {
		b.addUint32(unix.NFTA_NG_DREG, into)
		b.addUint32(unix.NFTA_NG_MODULUS, uint32(n))
		b.addUint32(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM)
	})
}

func (b *batch) loadValue(register uint32, value []byte) {
	b.addExpression("immediate", func() {
		b.addUint32(unix.NFTA_IMMEDIATE_DREG, register)
		b.addRegisterValue(unix.NFTA_IMMEDIATE_DATA, value)
	})
}

// addDNAT translates the destination to the address and port in the first registers.
func (b *batch) addDNAT() {
	b.addExpression("nat", func() {
		b.addUint32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		b.addUint32(unix.NFTA_NAT_FAMILY, uint32(b.family))
		b.addUint32(unix.NFTA_NAT_REG_ADDR_MIN, firstRegister)
		b.addUint32(unix.NFTA_NAT_REG_PROTO_MIN, firstRegister+b.addressBytes()/4)
	})
}
