// Package link connects a pod to its machine by a pair of interfaces, of which one is in the pod. The machine has a
// route to each of the pod's addresses. The pod has a route to its gateway, and a default route through it. All packets
// of pods are therefore forwarded packets, also those to another pod of the machine. The caller chooses the pod's
// addresses.
package link

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Prefix is the name prefix of the machine's interfaces to pods. No other interface may have it.
const Prefix = "kpod"

// Name returns the name of the machine's interface to a pod. It depends on the container of the pod's network and the
// interface's name in it. It has the maximum length of interface names.
func Name(container, inside string) string {
	sum := sha256.Sum256([]byte(container + "/" + inside))
	return (Prefix + hex.EncodeToString(sum[:]))[:unix.IFNAMSIZ-1]
}

// Address is one of a pod's addresses, with the gateway through which the pod reaches its machine. All pods of a
// machine have the same gateway.
type Address struct{ IP, Gateway netip.Addr }

// Pair describes the interfaces of a pod.
type Pair struct {
	Host, Inside string // names of the two interfaces
	MTU          int    // 0 for the kernel's default
	Addresses    []Address
}

// MACs returns the MAC addresses of the two interfaces. They are derived from the names: udev would replace an
// address chosen by the kernel a moment later, and the other side would have the old one.
func (p Pair) MACs() (host, inside net.HardwareAddr) {
	of := func(name string) net.HardwareAddr {
		sum := sha256.Sum256([]byte(name))
		sum[0] = sum[0]&^1 | 2 // unicast and locally administered
		return sum[:6]
	}
	return of(p.Host), of(p.Host + "/" + p.Inside)
}

// Create creates the pair, with one interface in the network namespace at path, such as /run/netns/NAME. On an error,
// it removes what it created.
func (p Pair) Create(path string) (err error) {
	pod, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer pod.close()
	// Remove leftovers of the same container from before a crash.
	if err := removeLink(p.Host); err != nil {
		return err
	}
	host, inside := p.MACs()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = p.Host, p.MTU, host
	pair := &netlink.Veth{
		LinkAttrs:        attrs,
		PeerName:         p.Inside,
		PeerNamespace:    netlink.NsFd(pod.file),
		PeerHardwareAddr: inside,
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("make the pair of interfaces %s and %s: %w", p.Host, p.Inside, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeLink(p.Host))
		}
	}()
	if err := IgnoreRouterAdvertisements(p.Host); err != nil {
		return err
	}
	hostEnd, err := openEnd(&netlink.Handle{}, p.Host, inside)
	if err != nil {
		return err
	}
	podEnd, err := openEnd(pod.Handle, p.Inside, host)
	if err != nil {
		return err
	}
	for _, a := range p.Addresses {
		err := hostEnd.addPeerRoute(a.Gateway, a.IP)
		if err == nil {
			err = podEnd.addPeerRoute(a.IP, a.Gateway)
		}
		if err == nil {
			err = podEnd.addDefaultRoute(a.Gateway)
		}
		if err != nil {
			return fmt.Errorf("give the pod the address %s: %w", a.IP, err)
		}
	}
	return nil
}

// IgnoreRouterAdvertisements makes the machine ignore router advertisements on one of its interfaces. Otherwise a pod's
// advertisement would become the machine's IPv6 default route. That happens on machines without IPv6 forwarding, and
// with accept_ra=2 on all others.
func IgnoreRouterAdvertisements(name string) error {
	path := "/proc/sys/net/ipv6/conf/" + name + "/accept_ra"
	existing, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(existing)) == "0" {
		return nil // IPv6 is disabled, or advertisements are already ignored
	}
	if err == nil {
		err = os.WriteFile(path, []byte("0"), 0o644)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the interface may have been removed
		return fmt.Errorf("disable router advertisements behind %s: %w", name, err)
	}
	return nil
}

// pairEnd is one interface of a pair, with the MAC address of the other.
type pairEnd struct {
	*netlink.Handle
	netlink.Link
	other net.HardwareAddr
}

func openEnd(h *netlink.Handle, name string, other net.HardwareAddr) (e pairEnd, err error) {
	l, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(l)
	}
	if err != nil {
		return e, fmt.Errorf("turn the interface %s on: %w", name, err)
	}
	return pairEnd{h, l, other}, nil
}

// addPeerRoute gives the interface an address and a route to the other interface's address. It sets the neighbour entry
// and skips duplicate address detection, so that neither side waits for the other.
func (e pairEnd) addPeerRoute(own, other netip.Addr) error {
	at := e.Attrs().Index
	err := e.AddrAdd(e.Link, &netlink.Addr{IPNet: hostNetwork(own), Flags: unix.IFA_F_NODAD})
	if err != nil {
		return fmt.Errorf("put %s on %s: %w", own, e.Attrs().Name, err)
	}
	err = e.NeighSet(
		&netlink.Neigh{LinkIndex: at, State: netlink.NUD_PERMANENT, IP: other.AsSlice(), HardwareAddr: e.other},
	)
	if err != nil {
		return fmt.Errorf("say where %s is: %w", other, err)
	}
	// Replace a leftover route of an earlier pod with this address.
	if err := e.RouteReplace(&netlink.Route{LinkIndex: at, Dst: hostNetwork(other),
		Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("route to %s: %w", other, err)
	}
	return nil
}

// addDefaultRoute adds the default route through the gateway.
func (e pairEnd) addDefaultRoute(gateway netip.Addr) error {
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gateway.Is6() {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	to := &net.IPNet{IP: all.Addr().AsSlice(), Mask: net.CIDRMask(0, all.Addr().BitLen())}
	if err := e.RouteAdd(&netlink.Route{LinkIndex: e.Attrs().Index, Dst: to, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("route by %s: %w", gateway, err)
	}
	return nil
}

func hostNetwork(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// Remove removes a pod's interface and the machine's. It looks for both: an earlier release may have given the
// machine's interface another name, and the pod's namespace may be gone. An empty path means that the namespace is
// gone.
func Remove(host, inside, path string) error {
	err := removeLink(host)
	if path == "" {
		return err
	}
	pod, e := openNamespace(path)
	if errors.Is(e, unix.ENOENT) {
		return err
	}
	if e != nil {
		return errors.Join(err, e)
	}
	defer pod.close()
	var missing netlink.LinkNotFoundError
	l, e := pod.LinkByName(inside)
	if e == nil {
		e = pod.LinkDel(l)
	}
	if e != nil && !errors.As(e, &missing) {
		return errors.Join(err, fmt.Errorf("remove the pod's interface %s: %w", inside, e))
	}
	return err
}

func removeLink(name string) error {
	var missing netlink.LinkNotFoundError
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil && !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the interface %s: %w", name, err)
	}
	return nil
}

// Check returns an error that describes what is missing of the pair.
func (p Pair) Check(path string) error {
	if _, err := netlink.LinkByName(p.Host); err != nil {
		return fmt.Errorf("read the interface %s: %w", p.Host, err)
	}
	pod, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer pod.close()
	l, err := pod.LinkByName(p.Inside)
	if err != nil {
		return fmt.Errorf("read the pod's interface %s: %w", p.Inside, err)
	}
	existing, err := pod.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("read the addresses of the pod's interface %s: %w", p.Inside, err)
	}
	for _, a := range p.Addresses {
		exists := false
		for _, h := range existing {
			exists = exists || h.IP.Equal(a.IP.AsSlice())
		}
		if !exists {
			return fmt.Errorf("the pod's interface %s has no address %s any more", p.Inside, a.IP)
		}
	}
	return nil
}

// netNamespace is a pod's network namespace.
type netNamespace struct {
	*netlink.Handle
	file netns.NsHandle
}

func openNamespace(path string) (*netNamespace, error) {
	file, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open the pod's network %s: %w", path, err)
	}
	h, err := netlink.NewHandleAt(file, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask the pod's network %s: %w", path, err), file.Close())
	}
	return &netNamespace{h, file}, nil
}

func (s *netNamespace) close() {
	s.Handle.Close()
	_ = s.file.Close() // it was only read
}
