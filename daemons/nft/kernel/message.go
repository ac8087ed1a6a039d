package kernel

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// message is a buffer of netlink messages with nested attributes. Numbers are in network byte order, except those in
// headers.
type message struct {
	bytes []byte
	seq   uint32
	at    int // start of the last message
}

const headerSize, subsystem = 16, unix.NFNL_SUBSYS_NFTABLES

// begin starts a message of the family; end completes it.
func (m *message) begin(kind, flags uint16, family nft.Family) {
	m.raw(subsystem<<8|kind, flags, uint8(family), 0)
}

func (m *message) raw(kind, flags uint16, family uint8, resource uint16) {
	m.seq++
	m.at = len(m.bytes)
	m.bytes = binary.NativeEndian.AppendUint32(m.bytes, 0)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, kind)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, unix.NLM_F_REQUEST|flags)
	m.bytes = binary.NativeEndian.AppendUint32(m.bytes, m.seq)
	m.bytes = binary.NativeEndian.AppendUint32(m.bytes, 0)
	m.bytes = append(m.bytes, family, unix.NFNETLINK_V0)
	m.bytes = binary.BigEndian.AppendUint16(m.bytes, resource)
}

func (m *message) end() {
	binary.NativeEndian.PutUint32(m.bytes[m.at:], uint32(len(m.bytes)-m.at))
}

// confirm requests a confirmation of the last completed message.
func (m *message) confirm() {
	flags := binary.NativeEndian.Uint16(m.bytes[m.at+6:])
	binary.NativeEndian.PutUint16(m.bytes[m.at+6:], flags|unix.NLM_F_ACK)
}

// open starts an attribute and returns its position; shut completes it.
func (m *message) open(kind uint16) int {
	at := len(m.bytes)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, 0)
	m.bytes = binary.NativeEndian.AppendUint16(m.bytes, kind)
	return at
}

func (m *message) nest(kind uint16) int { return m.open(kind | unix.NLA_F_NESTED) }

func (m *message) shut(at int) {
	binary.NativeEndian.PutUint16(m.bytes[at:], uint16(len(m.bytes)-at))
	for len(m.bytes)%4 != 0 {
		m.bytes = append(m.bytes, 0)
	}
}

func (m *message) data(kind uint16, value []byte) {
	at := m.open(kind)
	m.bytes = append(m.bytes, value...)
	m.shut(at)
}

func (m *message) text(kind uint16, value string) {
	at := m.open(kind)
	m.bytes = append(m.bytes, value...)
	m.bytes = append(m.bytes, 0)
	m.shut(at)
}

func (m *message) number(kind uint16, value uint32) {
	at := m.open(kind)
	m.bytes = binary.BigEndian.AppendUint32(m.bytes, value)
	m.shut(at)
}

func (m *message) long(kind uint16, value uint64) {
	at := m.open(kind)
	m.bytes = binary.BigEndian.AppendUint64(m.bytes, value)
	m.shut(at)
}

// value adds an attribute with a register value.
func (m *message) value(kind uint16, value []byte) {
	at := m.nest(kind)
	m.data(unix.NFTA_DATA_VALUE, value)
	m.shut(at)
}

// attributes calls do for each attribute in b. It does not descend into nested attributes.
func attributes(b []byte, do func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		length := int(binary.NativeEndian.Uint16(b))
		if length < 4 || length > len(b) {
			return
		}
		do(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:length])
		b = b[min(len(b), (length+3)&^3):]
	}
}
