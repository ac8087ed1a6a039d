// Package link joins a pod to its machine by a pair of interfaces of which one is in the pod. The machine has a route
// to each of the pod's addresses, and the pod a route to its gateway and everything else behind that, so that all
// packets of pods, also those to another pod of the machine, go the way of forwarded packets. Which addresses a pod has
// is for the caller to say.
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

// Prefix begins the names of the machine's ends of pairs. Nothing else on a machine may be named so.
const Prefix = "kpod"

// Name is the name of the machine's end of a pair, by the container that holds the pod's network and the interface's
// name in it. It is as long as names of interfaces may be.
func Name(container, inside string) string {
	sum := sha256.Sum256([]byte(container + "/" + inside))
	return (Prefix + hex.EncodeToString(sum[:]))[:unix.IFNAMSIZ-1]
}

// Address is one of a pod's addresses, with the one by which the pod reaches its machine. All pods of a machine have
// the same gateway.
type Address struct{ IP, Gateway netip.Addr }

// Pair is what a pod gets.
type Pair struct {
	Host, Inside string // names of the two ends
	MTU          int    // 0 for the kernel's
	Addresses    []Address
}

// Hardware are the hardware addresses of the two ends. They follow from the names: an address that the kernel draws
// would be replaced by udev a moment later, and the other end would not know.
func (p Pair) Hardware() (host, inside net.HardwareAddr) {
	of := func(name string) net.HardwareAddr {
		sum := sha256.Sum256([]byte(name))
		sum[0] = sum[0]&^1 | 2 // of one interface, and nobody's who sells them
		return sum[:6]
	}
	return of(p.Host), of(p.Host + "/" + p.Inside)
}

// Make makes a pair, of which one end is in the network of a path as /run/netns/NAME. What was made of one that fails
// is taken away.
func (p Pair) Make(path string) (err error) {
	pod, err := open(path)
	if err != nil {
		return err
	}
	defer pod.close()
	// What a runtime that lost power has left of the same container is of no use.
	if err := remove(p.Host); err != nil {
		return err
	}
	host, inside := p.Hardware()
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
			err = errors.Join(err, remove(p.Host))
		}
	}()
	if err := Deafen(p.Host); err != nil {
		return err
	}
	here, err := up(&netlink.Handle{}, p.Host, inside)
	if err != nil {
		return err
	}
	there, err := up(pod.Handle, p.Inside, host)
	if err != nil {
		return err
	}
	for _, a := range p.Addresses {
		err := here.join(a.Gateway, a.IP)
		if err == nil {
			err = there.join(a.IP, a.Gateway)
		}
		if err == nil {
			err = there.leave(a.Gateway)
		}
		if err != nil {
			return fmt.Errorf("give the pod the address %s: %w", a.IP, err)
		}
	}
	return nil
}

// Deafen has the machine listen to no router behind one of its interfaces. A pod is none: what it announces would
// become the machine's own way out by IPv6, on all machines that do not forward it and on those where somebody has set
// that routers are listened to all the same.
func Deafen(name string) error {
	path := "/proc/sys/net/ipv6/conf/" + name + "/accept_ra"
	have, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(have)) == "0" {
		return nil // a machine without IPv6, or one that does not
	}
	if err == nil {
		err = os.WriteFile(path, []byte("0"), 0o644)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // it may have gone meanwhile
		return fmt.Errorf("have nobody listen to routers behind %s: %w", name, err)
	}
	return nil
}

// end is one of the two, with the other's hardware address.
type end struct {
	*netlink.Handle
	netlink.Link
	other net.HardwareAddr
}

func up(h *netlink.Handle, name string, other net.HardwareAddr) (e end, err error) {
	l, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(l)
	}
	if err != nil {
		return e, fmt.Errorf("turn the interface %s on: %w", name, err)
	}
	return end{h, l, other}, nil
}

// join gives the end an address, and a route to the other end's. It is told where the other is, and no address is
// looked for or asked about on a link that has no third: nobody waits.
func (e end) join(own, other netip.Addr) error {
	at := e.Attrs().Index
	err := e.AddrAdd(e.Link, &netlink.Addr{IPNet: single(own), Flags: unix.IFA_F_NODAD})
	if err != nil {
		return fmt.Errorf("put %s on %s: %w", own, e.Attrs().Name, err)
	}
	err = e.NeighSet(
		&netlink.Neigh{LinkIndex: at, State: netlink.NUD_PERMANENT, IP: other.AsSlice(), HardwareAddr: e.other},
	)
	if err != nil {
		return fmt.Errorf("say where %s is: %w", other, err)
	}
	// A route left over from a former pod with this address leads nowhere.
	if err := e.RouteReplace(&netlink.Route{LinkIndex: at, Dst: single(other), Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("route to %s: %w", other, err)
	}
	return nil
}

// leave adds the default route, by the gateway.
func (e end) leave(gateway netip.Addr) error {
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

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// Remove takes a pod's interface away, and the machine's end with it. It looks for both, since a pod may have come from
// a release that named the machine's end otherwise, and the pod's network may be gone. A path of "" is a network that
// is gone.
func Remove(host, inside, path string) error {
	err := remove(host)
	if path == "" {
		return err
	}
	pod, e := open(path)
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

func remove(name string) error {
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

// Check reports what is missing of a pair.
func (p Pair) Check(path string) error {
	if _, err := netlink.LinkByName(p.Host); err != nil {
		return fmt.Errorf("look at the interface %s: %w", p.Host, err)
	}
	pod, err := open(path)
	if err != nil {
		return err
	}
	defer pod.close()
	l, err := pod.LinkByName(p.Inside)
	if err != nil {
		return fmt.Errorf("look at the pod's interface %s: %w", p.Inside, err)
	}
	have, err := pod.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("look at the addresses of the pod's interface %s: %w", p.Inside, err)
	}
	for _, a := range p.Addresses {
		there := false
		for _, h := range have {
			there = there || h.IP.Equal(a.IP.AsSlice())
		}
		if !there {
			return fmt.Errorf("the pod's interface %s has no address %s any more", p.Inside, a.IP)
		}
	}
	return nil
}

// stack is a pod's network.
type stack struct {
	*netlink.Handle
	file netns.NsHandle
}

func open(path string) (*stack, error) {
	file, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open the pod's network %s: %w", path, err)
	}
	h, err := netlink.NewHandleAt(file, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask the pod's network %s: %w", path, err), file.Close())
	}
	return &stack{h, file}, nil
}

func (s *stack) close() {
	s.Handle.Close()
	_ = s.file.Close() // it was read from alone
}
