// Package floating provides what the holders of addresses that move between machines have in common. It decides when a
// machine may take an address's lease, adds addresses with a short lifetime to the kernel, and announces them to
// neighbours. The daemons decide which machine should hold which address.
package floating

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// Link is a network interface for an address.
type Link struct {
	Address netip.Addr
	link    netlink.Link
}

// FindByAddress returns the interface that has the address own, for placing address on it.
func FindByAddress(own, address netip.Addr) (*Link, error) {
	var found *Link
	err := eachAddress(func(l netlink.Link, current netip.Prefix, _ netlink.Addr) {
		if current.Addr() == own {
			found = &Link{address, l}
		}
	})
	if err == nil && found == nil {
		err = fmt.Errorf("no network interface has the address %s", own)
	}
	return found, err
}

// ErrOwnAddress is returned for an address that already belongs to the machine. Floating it would give it a short
// lifetime, and the machine would lose it.
var ErrOwnAddress = errors.New("it is this machine's own address")

// Find returns the interface for an address: the one whose network contains the address, otherwise the one of the
// default route. If names are given, it only uses these interfaces, and the first of them if none is in the address's
// network.
func Find(address netip.Addr, names []string) (*Link, error) {
	var found *Link
	var own bool
	err := eachAddress(func(l netlink.Link, current netip.Prefix, entry netlink.Addr) {
		if current.Addr() == address && (entry.Flags&syscall.IFA_F_PERMANENT != 0 || !current.IsSingleIP()) {
			own = true
		}
		if found == nil && isUsable(l) && !current.IsSingleIP() && current.Contains(address) &&
			(len(names) == 0 || slices.Contains(names, l.Attrs().Name)) {
			found = &Link{address, l}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case own:
		return nil, fmt.Errorf("put %s on an interface: %w", address, ErrOwnAddress)
	case found != nil:
		return found, nil
	}
	for _, name := range names {
		if l, err := netlink.LinkByName(name); err == nil && isUsable(l) {
			return &Link{address, l}, nil
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("put %s on an interface: none of %q is up here", address, names)
	}
	family := netlink.FAMILY_V6
	if address.Is4() {
		family = netlink.FAMILY_V4
	}
	routes, err := netlink.RouteList(nil, family)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		ones := 0
		if r.Dst != nil {
			ones, _ = r.Dst.Mask.Size()
		}
		if ones != 0 || r.LinkIndex == 0 {
			continue
		}
		if l, err := netlink.LinkByIndex(r.LinkIndex); err == nil && isUsable(l) {
			return &Link{address, l}, nil
		}
	}
	return nil, fmt.Errorf("put %s on an interface: none is in its network, and there is no default route", address)
}

// isUsable reports whether a link can carry announcements to neighbours.
func isUsable(l netlink.Link) bool {
	a := l.Attrs()
	return a.Flags&net.FlagUp != 0 && a.Flags&net.FlagLoopback == 0 && len(a.HardwareAddr) == 6
}

func eachAddress(f func(netlink.Link, netip.Prefix, netlink.Addr)) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	for _, l := range links {
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addresses {
			ones, _ := a.Mask.Size()
			if current, ok := netip.AddrFromSlice(a.IP); ok {
				f(l, netip.PrefixFrom(current.Unmap(), ones), a)
			}
		}
	}
	return nil
}

// Interface returns the name of the interface.
func (l *Link) Interface() string { return l.link.Attrs().Name }

func (l *Link) netlinkAddr() *netlink.Addr {
	bits := l.Address.BitLen()
	return &netlink.Addr{IPNet: &net.IPNet{IP: l.Address.AsSlice(), Mask: net.CIDRMask(bits, bits)}}
}

// Set adds the address with a lifetime, or extends its lifetime. The kernel removes the address when the lifetime ends.
// It never uses the address as the source of packets.
func (l *Link) Set(lifetime time.Duration) error {
	a := l.netlinkAddr()
	a.ValidLft, a.PreferedLft = int(lifetime/time.Second), 0
	if l.Address.Is6() {
		a.Flags = syscall.IFA_F_NODAD // skip duplicate address detection, because the lease guarantees uniqueness
	}
	if err := netlink.AddrReplace(l.link, a); err != nil {
		return fmt.Errorf("put %s on %s: %w", l.Address, l.link.Attrs().Name, err)
	}
	return nil
}

// Remove removes the address if it is present.
func (l *Link) Remove() error {
	err := netlink.AddrDel(l.link, l.netlinkAddr())
	if err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("take %s from %s: %w", l.Address, l.link.Attrs().Name, err)
	}
	return nil
}

// Announce announces the address to the neighbours.
func (l *Link) Announce() error {
	protocol, to := uint16(syscall.ETH_P_ARP), net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	packet := arpAnnouncement(l.link.Attrs().HardwareAddr, l.Address)
	if l.Address.Is6() {
		protocol, to = syscall.ETH_P_IPV6, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
		packet = neighborAdvertisement(l.link.Attrs().HardwareAddr, l.Address)
	}
	if err := sendPacket(l.link.Attrs().Index, protocol, to, packet); err != nil {
		return fmt.Errorf("announce %s on %s: %w", l.Address, l.link.Attrs().Name, err)
	}
	return nil
}

// sendPacket sends a packet on a link. packet has no Ethernet header.
func sendPacket(index int, protocol uint16, to net.HardwareAddr, packet []byte) error {
	order := protocol<<8 | protocol>>8 // the kernel expects network byte order
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() { _ = syscall.Close(fd) }()
	at := &syscall.SockaddrLinklayer{Protocol: order, Ifindex: index, Halen: uint8(len(to))}
	copy(at.Addr[:], to)
	return syscall.Sendto(fd, packet, 0, at)
}

// IsTaken asks the neighbours for the address, and reports whether another machine answers within wait.
func (l *Link) IsTaken(wait time.Duration) (bool, error) {
	protocol, to := uint16(syscall.ETH_P_ARP), net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	mac := l.link.Attrs().HardwareAddr
	packet := arpProbe(mac, l.Address)
	if l.Address.Is6() {
		group := solicitedNodeAddress(l.Address).As16()
		protocol, to, packet = syscall.ETH_P_IPV6, append(net.HardwareAddr{0x33, 0x33},
			group[12:]...), neighborSolicitation(l.Address)
	}
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("ask on %s who has %s: %w", l.Interface(), l.Address, err)
	}
	order := protocol<<8 | protocol>>8
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, int(order))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: order, Ifindex: l.link.Attrs().Index}); err != nil {
		return fail(err)
	}
	if err := sendPacket(l.link.Attrs().Index, protocol, to, packet); err != nil {
		return fail(err)
	}
	buffer := make([]byte, 2048)
	for end := time.Now().Add(wait); ; {
		left := time.Until(end)
		if left <= 0 {
			return false, nil
		}
		limit := syscall.NsecToTimeval(max(left, time.Millisecond).Nanoseconds())
		if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit); err != nil {
			return fail(err)
		}
		n, from, err := syscall.Recvfrom(fd, buffer, 0)
		switch {
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return fail(err)
		}
		source, ok := from.(*syscall.SockaddrLinklayer)
		if !ok || source.Pkttype == syscall.PACKET_OUTGOING || source.Halen != 6 || bytes.Equal(source.Addr[:6], mac) {
			continue
		}
		if l.Address.Is6() && isAdvertisement(buffer[:n], l.Address) {
			return true, nil
		}
		if sender := arpSender(buffer[:n], l.Address); l.Address.Is4() && sender != nil && !bytes.Equal(sender, mac) {
			return true, nil
		}
	}
}
