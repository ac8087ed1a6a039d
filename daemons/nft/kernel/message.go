package kernel

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// netlinkMessage is a buffer of netlink messages with nested attributes. Numbers are in network byte order, except
// those in headers.
type netlinkMessage struct {
	bytes        []byte
	seq          uint32
	messageStart int // start of the last message
}

const headerSize, subsystem = 16, unix.NFNL_SUBSYS_NFTABLES

// begin starts a message of the family; end completes it.
func (m *netlinkMessage) begin(kind, flags uint16, family nft.Family) {
	m.beginRaw(subsystem<<8|kind, flags, uint8(family), 0)
}

func (m *netlinkMessage) beginRaw(kind, flags uint16, family uint8, resource uint16) {
	m.seq++
	m.messageStart = len(m.bytes)
	m.bytes = binary.NativeEndian.AppendUint32(m.bytes, 0)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, kind)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, unix.NLM_F_REQUEST|flags)
	m.bytes = binary.NativeEndian.AppendUint32(m.bytes, m.seq)
	m.bytes = binary.NativeEndian.AppendUint32(m.bytes, 0)
	m.bytes = append(m.bytes, family, unix.NFNETLINK_V0)
	m.bytes = binary.BigEndian.AppendUint16(m.bytes, resource)
}

func (m *netlinkMessage) end() {
	binary.NativeEndian.PutUint32(m.bytes[m.messageStart:], uint32(len(m.bytes)-m.messageStart))
}

// requestConfirm requests a confirmation of the last completed message.
func (m *netlinkMessage) requestConfirm() {
	flags := binary.NativeEndian.Uint16(m.bytes[m.messageStart+6:])
	binary.NativeEndian.PutUint16(m.bytes[m.messageStart+6:], flags|unix.NLM_F_ACK)
}

// openAttr starts an attribute and returns its position. closeAttr completes the attribute.
func (m *netlinkMessage) openAttr(kind uint16) int {
	at := len(m.bytes)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, 0)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, kind)
	return at
}

func (m *netlinkMessage) openNested(kind uint16) int { return m.openAttr(kind | unix.NLA_F_NESTED) }

func (m *netlinkMessage) closeAttr(at int) {
	binary.NativeEndian.PutUint16(m.bytes[at:], uint16(len(m.bytes)-at))
	for len(m.bytes)%4 != 0 {
		m.bytes = append(m.bytes, 0)
	}
}

func (m *netlinkMessage) addBytes(kind uint16, value []byte) {
	at := m.openAttr(kind)
	m.bytes = append(m.bytes, value...)
	m.closeAttr(at)
}

func (m *netlinkMessage) addText(kind uint16, value string) {
	at := m.openAttr(kind)
	m.bytes = append(m.bytes, value...)
	m.bytes = append(m.bytes, 0)
	m.closeAttr(at)
}

func (m *netlinkMessage) addUint32(kind uint16, value uint32) {
	at := m.openAttr(kind)
	m.bytes = binary.BigEndian.AppendUint32(m.bytes, value)
	m.closeAttr(at)
}

func (m *netlinkMessage) addUint64(kind uint16, value uint64) {
	at := m.openAttr(kind)
	m.bytes = binary.BigEndian.AppendUint64(m.bytes, value)
	m.closeAttr(at)
}

// addRegisterValue adds an attribute with a register value.
func (m *netlinkMessage) addRegisterValue(kind uint16, value []byte) {
	at := m.openNested(kind)
	m.addBytes(unix.NFTA_DATA_VALUE, value)
	m.closeAttr(at)
}

// eachAttribute calls do for each attribute in b. It does not descend into nested attributes.
func eachAttribute(b []byte, do func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		length := int(binary.NativeEndian.Uint16(b))
		if length < 4 || length > len(b) {
			return
		}
		do(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:length])
		b = b[min(len(b), (length+3)&^3):]
	}
}
