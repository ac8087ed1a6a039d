package network

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/network/link"
)

// overlayName is the VXLAN interface for packets to pods of machines behind a router. They are wrapped in packets to
// the machine, so that routers need not know the pods' networks.
const overlayName = "kube-vxlan"

// allowedSenders returns the addresses from which wrapped packets may come. A machine with several addresses sends from
// that of the interface that leads here, so all its addresses in at are included.
func (o overlay) allowedSenders(at map[string][]netip.Addr) []netip.Addr {
	list := slices.Clone(o.keptPeers)
	for name, p := range o.peers {
		list = slices.Concat(list, []netip.Addr{p.at}, p.via, at[name])
	}
	return list
}

// sources returns the addresses from which this machine sends wrapped packets to its peers, according to the kernel's
// routes.
func (o overlay) sources() []netip.Addr {
	found := map[netip.Addr]bool{}
	for _, p := range o.peers {
		ways, err := netlink.RouteGet(p.at.AsSlice())
		if err != nil || len(ways) == 0 {
			continue // nothing can be sent there
		}
		if a, ok := netip.AddrFromSlice(ways[0].Src); ok {
			found[a.Unmap()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), netip.Addr.Compare)
}

// unlistedSources returns the sources that peers do not know as addresses of this machine.
func (p *Plan) unlistedSources(sources []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(
		sources,
		func(a netip.Addr) bool {
			return slices.Contains(p.nodeAddresses, a) || slices.Contains(p.Callers.local, a)
		},
	)
}

// wrappingOverhead returns the number of bytes that wrapping adds to a packet: 14 for Ethernet, 8 for VXLAN, 8 for UDP,
// and 20 for IPv4 or 40 for IPv6.
func wrappingOverhead(peer netip.Addr) int {
	if peer.Is6() {
		return 70
	}
	return 50
}

// overlay is the wanted state of this machine's overlay interface.
type overlay struct {
	id, port  int                   // VXLAN network identifier and UDP port, the same on all machines
	self      string                // name of the node
	own       []netip.Addr          // addresses of the interface: the gateways of the machine's pods
	peers     map[string]routedPeer // machines to which packets are wrapped, by name
	keptPeers []netip.Addr          // other peers that stay as they are
}

// routedPeer is a machine behind a router.
type routedPeer struct {
	at  netip.Addr   // destination of wrapped packets
	via []netip.Addr // next hops of the routes through it
}

// macOf returns the MAC address of a node's overlay interface. It is derived from the name, so that machines need
// not ask each other.
func macOf(node string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(overlayName + "/" + node))
	sum[0] = sum[0]&^1 | 2
	return sum[:6]
}

// apply creates or updates the interface, and returns it with its MTU. The peers are static entries, so that the kernel
// neither asks for nor learns addresses.
func (o overlay) apply() (l netlink.Link, mtu int, err error) {
	if mtu, err = o.mtu(); err != nil {
		return nil, 0, err
	}
	if l, err = o.interfaceWithMTU(mtu); err != nil {
		return nil, 0, err
	}
	if l.Attrs().MTU != mtu {
		if err := netlink.LinkSetMTU(l, mtu); err != nil {
			return nil, 0, fmt.Errorf("set the largest packet of %s to %d: %w", overlayName, mtu, err)
		}
	}
	if err := link.IgnoreRouterAdvertisements(overlayName); err != nil {
		return nil, 0, err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return nil, 0, fmt.Errorf("turn %s on: %w", overlayName, err)
	}
	return l, mtu, errors.Join(o.setAddresses(l), o.setNeighbours(l))
}

// mtu returns the MTU for wrapped packets to all peers, according to the interfaces that lead to them.
func (o overlay) mtu() (mtu int, err error) {
	seen := map[int]bool{}
	for _, name := range slices.Sorted(maps.Keys(o.peers)) {
		at := o.peers[name].at
		ways, err := netlink.RouteGet(at.AsSlice())
		if err != nil || len(ways) == 0 {
			continue // this peer is unreachable; the others may not be
		}
		if seen[ways[0].LinkIndex] {
			continue
		}
		seen[ways[0].LinkIndex] = true
		l, err := netlink.LinkByIndex(ways[0].LinkIndex)
		if err != nil {
			return 0, fmt.Errorf("read the interface that leads to %s: %w", at, err)
		}
		if takes := l.Attrs().MTU - wrappingOverhead(at); mtu == 0 || takes < mtu {
			mtu = takes
		}
	}
	if mtu == 0 {
		return 0, fmt.Errorf("no route leads to any of %d machines of other networks", len(o.peers))
	}
	return mtu, nil
}

// interfaceWithMTU returns the interface. It creates the interface, or replaces it if its parameters differ.
func (o overlay) interfaceWithMTU(mtu int) (netlink.Link, error) {
	l, err := netlink.LinkByName(overlayName)
	var missing netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &missing) {
		return nil, fmt.Errorf("read %s: %w", overlayName, err)
	}
	want := macOf(o.self)
	if err == nil {
		vxlan, ok := l.(*netlink.Vxlan)
		if ok && vxlan.VxlanId == o.id && vxlan.Port == o.port && !vxlan.Learning &&
			vxlan.HardwareAddr.String() == want.String() {
			return l, nil
		}
		if err := netlink.LinkDel(l); err != nil {
			return nil, fmt.Errorf("remove the former %s: %w", overlayName, err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = overlayName, mtu, want
	if err := netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: o.id, Port: o.port}); err != nil {
		return nil, fmt.Errorf("make %s, by which machines of other networks are reached: %w", overlayName, err)
	}
	if l, err = netlink.LinkByName(overlayName); err != nil {
		return nil, fmt.Errorf("read %s: %w", overlayName, err)
	}
	return l, nil
}

// setAddresses sets the interface's addresses. Pods respond through the overlay to requests that the machine sends from
// one of them.
func (o overlay) setAddresses(l netlink.Link) error {
	existing, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("read the addresses of %s: %w", overlayName, err)
	}
	var failures []error
	for _, a := range o.own {
		at := slices.IndexFunc(existing, func(h netlink.Addr) bool { return h.IP.Equal(a.AsSlice()) })
		if at >= 0 {
			existing = slices.Delete(existing, at, at+1)
			continue
		}
		if err := netlink.AddrAdd(l,
			&netlink.Addr{IPNet: toIPNet(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NODAD}); err != nil {
			failures = append(failures, fmt.Errorf("put %s on %s: %w", a, overlayName, err))
		}
	}
	for _, h := range existing {
		if !h.IP.IsLinkLocalUnicast() {
			if err := netlink.AddrDel(l, &h); err != nil {
				failures = append(failures, fmt.Errorf("take %s from %s: %w", h.IP, overlayName, err))
			}
		}
	}
	return errors.Join(failures...)
}

// neighbourEntry is a static entry for a peer: the MAC address of a route's next hop, or the machine to which a MAC
// address is sent.
type neighbourEntry struct {
	family   int // unix.AF_BRIDGE for an entry with the machine
	ip       netip.Addr
	hardware string
}

func (e neighbourEntry) neighbour(l netlink.Link) *netlink.Neigh {
	mac, _ := net.ParseMAC(e.hardware) // the text was printed from a MAC address
	n := &netlink.Neigh{
		LinkIndex:    l.Attrs().Index,
		Family:       e.family,
		State:        netlink.NUD_PERMANENT,
		IP:           e.ip.AsSlice(),
		HardwareAddr: mac,
	}
	if e.family == unix.AF_BRIDGE {
		n.Flags = netlink.NTF_SELF
	}
	return n
}

func (o overlay) setNeighbours(l netlink.Link) error {
	want := map[neighbourEntry]bool{}
	for name, p := range o.peers {
		mac := macOf(name).String()
		want[neighbourEntry{unix.AF_BRIDGE, p.at, mac}] = true
		for _, via := range p.via {
			family := unix.AF_INET
			if via.Is6() {
				family = unix.AF_INET6
			}
			want[neighbourEntry{family, via, mac}] = true
		}
	}
	var failures []error
	for _, family := range []int{unix.AF_BRIDGE, unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.NeighList(l.Attrs().Index, family)
		if err != nil {
			failures = append(failures, fmt.Errorf("read the neighbours of %s: %w", overlayName, err))
			continue
		}
		for _, n := range list {
			ip, ok := netip.AddrFromSlice(n.IP)
			if !ok || n.State&netlink.NUD_PERMANENT == 0 {
				continue
			}
			e := neighbourEntry{family, ip.Unmap(), n.HardwareAddr.String()}
			if want[e] {
				delete(want, e)
			} else if slices.Contains(o.keptPeers, e.ip) {
				continue
			} else if err := netlink.NeighDel(e.neighbour(l)); err != nil && !errors.Is(err, unix.ENOENT) {
				failures = append(failures, fmt.Errorf("forget %s on %s: %w", e.ip, overlayName, err))
			}
		}
	}
	for e := range want {
		if err := netlink.NeighSet(e.neighbour(l)); err != nil {
			failures = append(failures, fmt.Errorf("say where %s is on %s: %w", e.ip, overlayName, err))
		}
	}
	return errors.Join(failures...)
}

// removeOverlay removes the interface if it exists.
func removeOverlay() error {
	l, err := netlink.LinkByName(overlayName)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err == nil && l.Type() == "vxlan" {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", overlayName, err)
	}
	return nil
}
