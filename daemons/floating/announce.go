package floating

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
)

// arpAnnouncement returns the ARP announcement of RFC 5227. It is a request whose sender and target are the address
// itself, and it updates the caches of all neighbours.
func arpAnnouncement(mac net.HardwareAddr, address netip.Addr) []byte {
	p := make([]byte, 0, 28)
	p = binary.BigEndian.AppendUint16(p, 1)      // Ethernet
	p = binary.BigEndian.AppendUint16(p, 0x0800) // IPv4
	p = append(p, 6, 4)                          // lengths of addresses
	p = binary.BigEndian.AppendUint16(p, 1)      // request
	p = append(append(p, mac...), address.AsSlice()...)
	return append(append(p, 0, 0, 0, 0, 0, 0), address.AsSlice()...)
}

const (
	icmpv6Protocol    = 58
	advertisementType = 136
	overrideFlag      = 0x20 // override flag: replace the cached entry
	targetOption      = 2    // target link-layer address option
)

// neighborAdvertisement returns the unsolicited advertisement to all nodes of RFC 4861, section 7.2.6, with its IPv6
// header.
func neighborAdvertisement(mac net.HardwareAddr, address netip.Addr) []byte {
	body := append([]byte{advertisementType, 0, 0, 0, overrideFlag, 0, 0, 0}, address.AsSlice()...)
	body = append(append(body, targetOption, 1), mac...)
	all := netip.MustParseAddr("ff02::1")
	binary.BigEndian.PutUint16(body[2:], checksum(address, all, body))
	// Receivers ignore the message unless the hop limit is 255.
	header := []byte{0x60, 0, 0, 0, 0, byte(len(body)), icmpv6Protocol, 255}
	header = append(append(header, address.AsSlice()...), all.AsSlice()...)
	return append(header, body...)
}

// checksum returns the ICMPv6 checksum over the pseudo-header and the message, whose checksum field is zero.
func checksum(from, to netip.Addr, body []byte) uint16 {
	text := append(append(from.AsSlice(), to.AsSlice()...), 0, 0, 0, byte(len(body)), 0, 0, 0, icmpv6Protocol)
	text = append(text, body...)
	var sum uint32
	for i := 0; i+1 < len(text); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(text[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// arpProbe returns the ARP probe of RFC 5227, by which a machine asks for an address without claiming it.
func arpProbe(mac net.HardwareAddr, address netip.Addr) []byte {
	p := arpAnnouncement(mac, address)
	copy(p[14:18], []byte{0, 0, 0, 0})
	return p
}

// arpSender returns the MAC address of the sender of an ARP packet if the sender claims the address, otherwise nil.
func arpSender(p []byte, address netip.Addr) net.HardwareAddr {
	if len(p) < 28 || p[4] != 6 || !bytes.Equal(p[14:18], address.AsSlice()) {
		return nil
	}
	return p[8:14]
}

const solicitationType = 135

// solicitedNodeAddress returns the solicited-node multicast address of RFC 4291.
func solicitedNodeAddress(address netip.Addr) netip.Addr {
	group, own := netip.MustParseAddr("ff02::1:ff00:0").As16(), address.As16()
	copy(group[13:], own[13:])
	return netip.AddrFrom16(group)
}

// neighborSolicitation returns the solicitation of RFC 4862, section 5.4.2, by which a machine asks for an address
// without claiming it.
func neighborSolicitation(address netip.Addr) []byte {
	body := append([]byte{solicitationType, 0, 0, 0, 0, 0, 0, 0}, address.AsSlice()...)
	to := solicitedNodeAddress(address)
	binary.BigEndian.PutUint16(body[2:], checksum(netip.IPv6Unspecified(), to, body))
	header := []byte{0x60, 0, 0, 0, 0, byte(len(body)), icmpv6Protocol, 255}
	header = append(append(header, netip.IPv6Unspecified().AsSlice()...), to.AsSlice()...)
	return append(header, body...)
}

// isAdvertisement reports whether an IPv6 packet is a neighbour advertisement for an address.
func isAdvertisement(p []byte, address netip.Addr) bool {
	return len(p) >= 64 && p[6] == icmpv6Protocol && p[40] == advertisementType &&
		bytes.Equal(p[48:64], address.AsSlice())
}
