package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// These are type numbers of nft. nft uses them to print the elements of sets.
const (
	typeInteger  = 4
	typeIPv4     = 7
	typeIPv6     = 8
	typeProto    = 12
	typePort     = 13
	typeNumber   = 19 // nft's type for marks, which it can print
	typePriority = 23 // nft's type for packet priorities
	typeBits     = 6  // bits per type in the number of a concatenated type
	typeVerdict  = 0xffffff00
)

// maxDynamic limits the size of a set to which rules add elements.
const maxDynamic = 1 << 16

// maxElementBytes limits the bytes of elements in one message, because an attribute holds at most 64 KiB.
const maxElementBytes = 60 << 10

func (b *batch) addressBytes() uint32 {
	if b.family == nft.IPv6 {
		return 16
	}
	return 4
}

// keyType returns the type number of a key and its length in bytes. Every field starts at a 32-bit boundary.
func (b *batch) keyType(key []nft.Field) (kind, length uint32) {
	for _, f := range key {
		kind <<= typeBits
		switch f {
		case nft.Source, nft.Destination:
			length += b.addressBytes()
			kind |= typeIPv4
			if b.family == nft.IPv6 {
				kind = kind&^typeIPv4 | typeIPv6
			}
		case nft.Protocol:
			kind, length = kind|typeProto, length+4
		case nft.Port:
			kind, length = kind|typePort, length+4
		case nft.Index:
			kind, length = kind|typeNumber, length+4
		}
	}
	return kind, length
}

func (b *batch) addSet(name string, s nft.Set) {
	kind, length := b.keyType(s.Key)
	var flags uint32
	if s.Values != nft.NoValues {
		flags |= unix.NFT_SET_MAP
	}
	if s.Ranges {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.Timeout > 0 {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	b.sets++
	b.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, b.family)
	b.addText(unix.NFTA_SET_TABLE, b.table)
	b.addText(unix.NFTA_SET_NAME, name)
	b.addUint32(unix.NFTA_SET_ID, b.sets)
	b.addUint32(unix.NFTA_SET_FLAGS, flags)
	b.addUint32(unix.NFTA_SET_KEY_TYPE, kind)
	b.addUint32(unix.NFTA_SET_KEY_LEN, length)
	switch s.Values {
	case nft.Verdicts:
		b.addUint32(unix.NFTA_SET_DATA_TYPE, typeVerdict)
		b.addUint32(unix.NFTA_SET_DATA_LEN, 0)
	case nft.Numbers:
		b.addUint32(unix.NFTA_SET_DATA_TYPE, typePriority)
		b.addUint32(unix.NFTA_SET_DATA_LEN, 4)
	case nft.Endpoints:
		data, bytes := b.keyType([]nft.Field{nft.Destination, nft.Port})
		b.addUint32(unix.NFTA_SET_DATA_TYPE, data)
		b.addUint32(unix.NFTA_SET_DATA_LEN, bytes)
	}
	if s.Timeout > 0 {
		b.addUint64(unix.NFTA_SET_TIMEOUT, uint64(s.Timeout)*1000)
		at := b.openNested(unix.NFTA_SET_DESC)
		b.addUint32(unix.NFTA_SET_DESC_SIZE, maxDynamic)
		b.closeAttr(at)
	}
	b.addBytes(unix.NFTA_SET_USERDATA, userdata(s.Mark()))
	b.end()
}

// changeElements adds messages that add elements to a set or remove them. id identifies an anonymous set; 0 for a named
// one.
func (b *batch) changeElements(kind uint16, set string, id uint32, s nft.Set, list []nft.Element) {
	for len(list) > 0 {
		b.begin(kind, unix.NLM_F_CREATE, b.family)
		b.addText(unix.NFTA_SET_ELEM_LIST_TABLE, b.table)
		b.addText(unix.NFTA_SET_ELEM_LIST_SET, set)
		if id != 0 {
			b.addUint32(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
		}
		at := b.openNested(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for len(list) > 0 && len(b.bytes)-at < maxElementBytes {
			e := list[0]
			list = list[1:]
			b.addElement(b.encodeKey(s.Key, e.Key), s.Values, e.Value, false)
			if s.Ranges {
				// The end of a range is the first address after it. A range up to the highest address has no end.
				if after := keyEnd(e.Key).Next(); after.IsValid() {
					b.addElement(after.AsSlice(), nft.NoValues, nft.Value{}, true)
				}
			}
		}
		b.closeAttr(at)
		b.end()
	}
}

func keyEnd(k nft.Key) netip.Addr {
	if k.Source.First.IsValid() {
		return k.Source.LastAddress()
	}
	return k.Destination.LastAddress()
}

func (b *batch) addElement(key []byte, kind nft.Kind, v nft.Value, isEnd bool) {
	at := b.openNested(unix.NFTA_LIST_ELEM)
	b.addRegisterValue(unix.NFTA_SET_ELEM_KEY, key)
	switch kind {
	case nft.Verdicts:
		to := b.openNested(unix.NFTA_SET_ELEM_DATA)
		b.addVerdict(v.Verdict)
		b.closeAttr(to)
	case nft.Numbers:
		b.addRegisterValue(unix.NFTA_SET_ELEM_DATA, nativeUint32(storedBase+v.Number))
	case nft.Endpoints:
		b.addRegisterValue(unix.NFTA_SET_ELEM_DATA, encodeEndpoint(v.To))
	}
	if isEnd {
		b.addUint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	b.closeAttr(at)
}

// encodeKey returns the kernel's form of a key.
func (b *batch) encodeKey(fields []nft.Field, k nft.Key) (out []byte) {
	for _, f := range fields {
		switch f {
		case nft.Source:
			out = append(out, k.Source.First.AsSlice()...)
		case nft.Destination:
			out = append(out, k.Destination.First.AsSlice()...)
		case nft.Protocol:
			out = append(out, k.Protocol, 0, 0, 0)
		case nft.Port:
			out = append(binary.BigEndian.AppendUint16(out, k.Port), 0, 0)
		case nft.Index:
			out = append(out, nativeUint32(k.Index)...)
		}
	}
	return out
}

// verdictDrop and accept are verdicts that have no name in package unix.
const verdictDrop, verdictAccept = 0, 1

// encodeEndpoint returns an address and port in the form of the kernel's registers.
func encodeEndpoint(to netip.AddrPort) []byte {
	return append(binary.BigEndian.AppendUint16(to.Addr().AsSlice(), to.Port()), 0, 0)
}

var verdicts = map[string]int32{
	"accept": verdictAccept,
	"drop":   verdictDrop,
	"return": unix.NFT_RETURN,
	"jump":   unix.NFT_JUMP,
	"goto":   unix.NFT_GOTO,
}

func (b *batch) addVerdict(v nft.Verdict) {
	at := b.openNested(unix.NFTA_DATA_VERDICT)
	b.addUint32(unix.NFTA_VERDICT_CODE, uint32(verdicts[v.Action]))
	if v.Chain != "" {
		b.addText(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	b.closeAttr(at)
}

// addRandomMaps adds the anonymous maps of a rule's statements. It returns the map's ID by the index of the statement.
func (b *batch) addRandomMaps(rule nft.Rule) (ids map[int]uint32, err error) {
	for i, s := range rule {
		var id uint32
		switch s := s.(type) {
		case nft.Random:
			id = b.addAnonymousMap(typeVerdict, 0)
			b.addIndexed(id, 0, len(s.Chains),
				func(i int) { b.addVerdict(nft.Verdict{Action: "goto", Chain: s.Chains[i]}) })
		case nft.RandomTo:
			for _, to := range s.To {
				if to.Addr().Is4() != (b.family == nft.IPv4) {
					return nil, fmt.Errorf("%s is not of the table's family", to)
				}
			}
			kind, length := b.keyType([]nft.Field{nft.Destination, nft.Port})
			id = b.addAnonymousMap(kind, length)
			b.addIndexed(id, 0, len(s.To), func(i int) {
				b.addBytes(unix.NFTA_DATA_VALUE, encodeEndpoint(s.To[i]))
			})
		case nft.GotoStored:
			id = b.addAnonymousMap(typeVerdict, 0)
			b.addIndexed(id, storedBase+1, len(s.Chains),
				func(i int) { b.addVerdict(nft.Verdict{Action: "goto", Chain: s.Chains[i]}) })
		default:
			continue
		}
		if ids == nil {
			ids = map[int]uint32{}
		}
		ids[i] = id
	}
	return ids, nil
}

// anonymousName is the pattern from which the kernel makes the name of an anonymous set. Such a set is removed with its
// rule.
const anonymousName = "__map%d"

func (b *batch) addAnonymousMap(data, length uint32) (id uint32) {
	b.sets++
	b.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, b.family)
	b.addText(unix.NFTA_SET_TABLE, b.table)
	b.addText(unix.NFTA_SET_NAME, anonymousName)
	b.addUint32(unix.NFTA_SET_ID, b.sets)
	b.addUint32(unix.NFTA_SET_FLAGS, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT|unix.NFT_SET_MAP)
	b.addUint32(unix.NFTA_SET_KEY_TYPE, typeInteger)
	b.addUint32(unix.NFTA_SET_KEY_LEN, 4)
	b.addUint32(unix.NFTA_SET_DATA_TYPE, data)
	b.addUint32(unix.NFTA_SET_DATA_LEN, length)
	b.addBytes(unix.NFTA_SET_USERDATA, hostOrder)
	b.end()
	return b.sets
}

// hostOrder is user data that makes nft print an anonymous map's keys in the correct byte order.
var hostOrder = binary.NativeEndian.AppendUint32([]byte{0, 4}, 1)

// addIndexed adds n elements to an anonymous map. The keys are the numbers from from on.
func (b *batch) addIndexed(id, from uint32, n int, value func(i int)) {
	for i := 0; i < n; {
		b.begin(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, b.family)
		b.addText(unix.NFTA_SET_ELEM_LIST_TABLE, b.table)
		b.addText(unix.NFTA_SET_ELEM_LIST_SET, anonymousName)
		b.addUint32(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
		at := b.openNested(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for ; i < n && len(b.bytes)-at < maxElementBytes; i++ {
			e := b.openNested(unix.NFTA_LIST_ELEM)
			b.addRegisterValue(unix.NFTA_SET_ELEM_KEY, binary.NativeEndian.AppendUint32(nil, from+uint32(i)))
			to := b.openNested(unix.NFTA_SET_ELEM_DATA)
			value(i)
			b.closeAttr(to)
			b.closeAttr(e)
		}
		b.closeAttr(at)
		b.end()
	}
}

// markType is the type of the mark in the user data of rules and sets. nft ignores unknown types.
const markType = 0x4d

func userdata(mark uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{markType, 8}, mark)
}

// readMark returns the mark in user data, or 0 if there is none.
func readMark(data []byte) uint64 {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if data[0] == markType && data[1] == 8 {
			return binary.BigEndian.Uint64(data[2:])
		}
		data = data[2+int(data[1]):]
	}
	return 0
}
