package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// link is the interface that the machine's own address is on.
type link struct {
	netlink.Link
	address netip.Addr
}

// find returns the interface of own, to put address on.
func find(own, address netip.Addr) (*link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	for _, l := range links {
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addresses {
			if have, ok := netip.AddrFromSlice(a.IP); ok && have.Unmap() == own {
				return &link{l, address}, nil
			}
		}
	}
	return nil, fmt.Errorf("no network interface has the address %s", own)
}

func (l *link) entry() *netlink.Addr {
	bits := l.address.BitLen()
	return &netlink.Addr{IPNet: &net.IPNet{IP: l.address.AsSlice(), Mask: net.CIDRMask(bits, bits)}}
}

// Set adds the address, or has it stay, for so long: the kernel removes it when nobody
// calls again. It is never chosen as the source of what this machine sends.
func (l *link) Set(lifetime time.Duration) error {
	a := l.entry()
	a.ValidLft, a.PreferedLft = int(lifetime/time.Second), 0
	if l.address.Is6() {
		a.Flags = syscall.IFA_F_NODAD // the lease has made sure
	}
	if err := netlink.AddrReplace(l.Link, a); err != nil {
		return fmt.Errorf("put %s on %s: %w", l.address, l.Attrs().Name, err)
	}
	return nil
}

// Remove takes the address away, when it is there.
func (l *link) Remove() error {
	err := netlink.AddrDel(l.Link, l.entry())
	if err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("take %s from %s: %w", l.address, l.Attrs().Name, err)
	}
	return nil
}

// Announce tells the neighbours where the address is now.
func (l *link) Announce() error {
	protocol, to := uint16(syscall.ETH_P_ARP), net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	packet := arpAnnouncement(l.Attrs().HardwareAddr, l.address)
	if l.address.Is6() {
		protocol, to = syscall.ETH_P_IPV6, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
		packet = neighborAdvertisement(l.Attrs().HardwareAddr, l.address)
	}
	if err := send(l.Attrs().Index, protocol, to, packet); err != nil {
		return fmt.Errorf("announce %s on %s: %w", l.address, l.Attrs().Name, err)
	}
	return nil
}

// send puts a packet on a link, without its Ethernet header.
func send(index int, protocol uint16, to net.HardwareAddr, packet []byte) error {
	order := protocol<<8 | protocol>>8 // the kernel wants it as on the wire
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() { _ = syscall.Close(fd) }()
	at := &syscall.SockaddrLinklayer{Protocol: order, Ifindex: index, Halen: uint8(len(to))}
	copy(at.Addr[:], to)
	return syscall.Sendto(fd, packet, 0, at)
}
