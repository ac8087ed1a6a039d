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

// overlayName is the interface through which packets to pods of machines behind a router go: they are wrapped for the
// machine, so that no router has to know the pods' networks.
const overlayName = "kube-vxlan"

// senders are the addresses that wrapped packets may come from. A machine of several addresses sends under that of the
// interface which leads here; at has what is known of each.
func (o overlay) senders(at map[string][]netip.Addr) []netip.Addr {
	list := slices.Clone(o.kept)
	for name, p := range o.peers {
		list = slices.Concat(list, []netip.Addr{p.at}, p.via, at[name])
	}
	return list
}

// sources are the addresses under which this machine sends wrapped packets to its peers: those that the kernel's routes
// have.
func (o overlay) sources() []netip.Addr {
	found := map[netip.Addr]bool{}
	for _, p := range o.peers {
		ways, err := netlink.RouteGet(p.at.AsSlice())
		if err != nil || len(ways) == 0 {
			continue // nothing is sent there
		}
		if a, ok := netip.AddrFromSlice(ways[0].Src); ok {
			found[a.Unmap()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), netip.Addr.Compare)
}

// unlisted are the sources of which peers do not know that they are this machine's.
func (p *Plan) unlisted(sources []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(
		sources,
		func(a netip.Addr) bool { return slices.Contains(p.listed, a) || slices.Contains(p.Callers.own, a) },
	)
}

// wrapping is how much longer a packet gets: by Ethernet's header of 14 bytes, VXLAN's of 8, UDP's of 8 and IPv4's of
// 20, and of IPv6 by 20 more.
func wrapping(peer netip.Addr) int {
	if peer.Is6() {
		return 70
	}
	return 50
}

// overlay is what this machine's interface should be.
type overlay struct {
	id, port int            // of VXLAN, the same on all machines
	self     string         // name of the node
	own      []netip.Addr   // addresses that the machine has for it: the gateways of its pods
	peers    map[string]far // machines that packets are wrapped for
	kept     []netip.Addr   // of others that stay known as they are
}

// far is a machine behind a router.
type far struct {
	at  netip.Addr   // where wrapped packets are sent
	via []netip.Addr // by which routes know it
}

// hardware is the hardware address of a node's end. It follows from the name, so that nobody has to be asked.
func hardware(node string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(overlayName + "/" + node))
	sum[0] = sum[0]&^1 | 2
	return sum[:6]
}

// put makes the kernel's interface what it should be, and returns it with the largest packet that it takes. What the
// peers' ends are is written down for the kernel: it neither asks nor learns.
func (o overlay) put() (l netlink.Link, mtu int, err error) {
	if mtu, err = o.mtu(); err != nil {
		return nil, 0, err
	}
	if l, err = o.link(mtu); err != nil {
		return nil, 0, err
	}
	if l.Attrs().MTU != mtu {
		if err := netlink.LinkSetMTU(l, mtu); err != nil {
			return nil, 0, fmt.Errorf("set the largest packet of %s to %d: %w", overlayName, mtu, err)
		}
	}
	if err := link.Deafen(overlayName); err != nil {
		return nil, 0, err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return nil, 0, fmt.Errorf("turn %s on: %w", overlayName, err)
	}
	return l, mtu, errors.Join(o.addresses(l), o.neighbours(l))
}

// mtu is the largest packet that gets to all peers wrapped, by the interfaces that lead there.
func (o overlay) mtu() (mtu int, err error) {
	seen := map[int]bool{}
	for _, name := range slices.Sorted(maps.Keys(o.peers)) {
		at := o.peers[name].at
		ways, err := netlink.RouteGet(at.AsSlice())
		if err != nil || len(ways) == 0 {
			continue // there is no way to it; the others have one
		}
		if seen[ways[0].LinkIndex] {
			continue
		}
		seen[ways[0].LinkIndex] = true
		l, err := netlink.LinkByIndex(ways[0].LinkIndex)
		if err != nil {
			return 0, fmt.Errorf("look at the interface that leads to %s: %w", at, err)
		}
		if takes := l.Attrs().MTU - wrapping(at); mtu == 0 || takes < mtu {
			mtu = takes
		}
	}
	if mtu == 0 {
		return 0, fmt.Errorf("no route leads to any of %d machines of other networks", len(o.peers))
	}
	return mtu, nil
}

// link finds the interface, or makes it where there is none or one of another kind.
func (o overlay) link(mtu int) (netlink.Link, error) {
	l, err := netlink.LinkByName(overlayName)
	var missing netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &missing) {
		return nil, fmt.Errorf("look at %s: %w", overlayName, err)
	}
	want := hardware(o.self)
	if err == nil {
		is, ok := l.(*netlink.Vxlan)
		if ok && is.VxlanId == o.id && is.Port == o.port && !is.Learning && is.HardwareAddr.String() == want.String() {
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
		return nil, fmt.Errorf("look at %s: %w", overlayName, err)
	}
	return l, nil
}

// addresses gives the interface the machine's own, so that who is asked by the machine through it answers through it.
func (o overlay) addresses(l netlink.Link) error {
	have, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("look at the addresses of %s: %w", overlayName, err)
	}
	var failures []error
	for _, a := range o.own {
		at := slices.IndexFunc(have, func(h netlink.Addr) bool { return h.IP.Equal(a.AsSlice()) })
		if at >= 0 {
			have = slices.Delete(have, at, at+1)
			continue
		}
		if err := netlink.AddrAdd(l,
			&netlink.Addr{IPNet: network(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NODAD}); err != nil {
			failures = append(failures, fmt.Errorf("put %s on %s: %w", a, overlayName, err))
		}
	}
	for _, h := range have {
		if !h.IP.IsLinkLocalUnicast() {
			if err := netlink.AddrDel(l, &h); err != nil {
				failures = append(failures, fmt.Errorf("take %s from %s: %w", h.IP, overlayName, err))
			}
		}
	}
	return errors.Join(failures...)
}

// entry is what the kernel is told of a peer: by which hardware address the next hop of a route goes, or to which
// machine that goes.
type entry struct {
	family   int // unix.AF_BRIDGE for the machine
	ip       netip.Addr
	hardware string
}

func (e entry) neighbour(l netlink.Link) *netlink.Neigh {
	mac, _ := net.ParseMAC(e.hardware) // it was printed from one
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

func (o overlay) neighbours(l netlink.Link) error {
	want := map[entry]bool{}
	for name, p := range o.peers {
		mac := hardware(name).String()
		want[entry{unix.AF_BRIDGE, p.at, mac}] = true
		for _, via := range p.via {
			family := unix.AF_INET
			if via.Is6() {
				family = unix.AF_INET6
			}
			want[entry{family, via, mac}] = true
		}
	}
	var failures []error
	for _, family := range []int{unix.AF_BRIDGE, unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.NeighList(l.Attrs().Index, family)
		if err != nil {
			failures = append(failures, fmt.Errorf("look at the neighbours of %s: %w", overlayName, err))
			continue
		}
		for _, n := range list {
			ip, ok := netip.AddrFromSlice(n.IP)
			if !ok || n.State&netlink.NUD_PERMANENT == 0 {
				continue
			}
			e := entry{family, ip.Unmap(), n.HardwareAddr.String()}
			if want[e] {
				delete(want, e)
			} else if slices.Contains(o.kept, e.ip) {
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

// removeOverlay takes the interface away, where it is.
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
