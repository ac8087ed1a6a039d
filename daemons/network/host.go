package network

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"

	"clusterctl/daemons/network/link"
)

// protocol marks our routes in the kernel's table, so that they are told from an
// administrator's. The number is one that no routing daemon has.
const protocol netlink.RouteProtocol = 99

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// routes returns our routes that the kernel has. overlay is the interface of those that are wrapped, 0 for none.
func routes(overlay int) ([]Route, error) {
	list, err := netlink.RouteListFiltered(
		netlink.FAMILY_ALL,
		&netlink.Route{Protocol: protocol},
		netlink.RT_FILTER_PROTOCOL,
	)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var have []Route
	for _, r := range list {
		if r.Dst == nil {
			continue
		}
		to, ok := netip.AddrFromSlice(r.Dst.IP)
		via, _ := netip.AddrFromSlice(r.Gw)
		src, _ := netip.AddrFromSlice(r.Src)
		ones, _ := r.Dst.Mask.Size()
		if ok {
			have = append(
				have,
				Route{
					To:      netip.PrefixFrom(to.Unmap(), ones),
					Via:     via.Unmap(),
					Wrapped: overlay != 0 && r.LinkIndex == overlay,
					Src:     src.Unmap(),
				},
			)
		}
	}
	return have, nil
}

// setRoutes makes our routes in the kernel what is wanted. One that cannot be made does not keep the others from being
// made. overlay is the interface through which those that are wrapped go, 0 when it could not be made. It returns how
// many are there.
func setRoutes(want []Route, overlay int) (made int, err error) {
	have, err := routes(overlay)
	if err != nil {
		return 0, err
	}
	add, remove := Diff(have, want)
	var failures []error
	for _, r := range remove {
		err := netlink.RouteDel(&netlink.Route{Dst: network(r.To), Gw: r.Via.AsSlice(), Protocol: protocol})
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			failures = append(failures, fmt.Errorf("remove the route to %s: %w", r.To, err))
		}
	}
	made = len(want)
	for _, r := range add {
		route := &netlink.Route{Dst: network(r.To), Gw: r.Via.AsSlice(), Protocol: protocol}
		if r.Wrapped {
			if overlay == 0 {
				failures = append(
					failures,
					fmt.Errorf("route %s via %s: it is behind a router, and there is no %s", r.To, r.Via, overlayName),
				)
				made--
				continue
			}
			route.LinkIndex, route.Flags, route.Src = overlay, int(netlink.FLAG_ONLINK), r.Src.AsSlice()
		}
		if err := netlink.RouteReplace(route); err != nil {
			failures = append(failures, fmt.Errorf("route %s via %s: %w", r.To, r.Via, err))
			made--
		}
	}
	return made, errors.Join(failures...)
}

// mtuOf returns the largest packet of the interfaces that have addresses, the smallest of several; 0 when none of them
// is here.
func mtuOf(ips []netip.Addr) (mtu int) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return 0
	}
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); !ok || !slices.Contains(ips, ip.Unmap()) {
			continue
		}
		if l, err := netlink.LinkByIndex(a.LinkIndex); err == nil && (mtu == 0 || l.Attrs().MTU < mtu) {
			mtu = l.Attrs().MTU
		}
	}
	return mtu
}

// forward lets this machine pass packets on, of the families that pods have addresses of.
func forward(clusters []netip.Prefix) error {
	var failures []error
	for family, path := range map[bool]string{true: "/proc/sys/net/ipv4/ip_forward", false: forwarding6} {
		if !slices.ContainsFunc(clusters, func(p netip.Prefix) bool { return p.Addr().Is4() == family }) {
			continue
		}
		if path == forwarding6 {
			failures = append(failures, keepRouters())
		}
		failures = append(failures, set(path, "1"))
	}
	return errors.Join(failures...)
}

const forwarding6 = "/proc/sys/net/ipv6/conf/all/forwarding"

// keepRouters has interfaces that listened to routers go on with it when the machine forwards: its own way out would
// end with the lifetime of what a router has said last. Those of pods listen to nobody (link.Deafen).
func keepRouters() error {
	if have, err := os.ReadFile(forwarding6); err != nil || !bytes.HasPrefix(have, []byte("0")) {
		return nil // there is no such protocol, or the machine forwards already, as somebody has set it up
	}
	all, err := filepath.Glob("/proc/sys/net/ipv6/conf/*/accept_ra")
	if err != nil {
		return err
	}
	var failures []error
	for _, path := range all {
		name := filepath.Base(filepath.Dir(path))
		have, err := os.ReadFile(path)
		if name == "all" || name == "default" || strings.HasPrefix(name, link.Prefix) || err != nil ||
			!bytes.HasPrefix(have, []byte("1")) {
			continue
		}
		failures = append(failures, set(path, "2"))
	}
	return errors.Join(failures...)
}

// deafen has the machine listen to no router behind the interfaces of pods that an earlier release has made.
func deafen() error {
	all, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list the interfaces of pods: %w", err)
	}
	var failures []error
	for _, l := range all {
		if name := l.Attrs().Name; name == formerBridge || strings.HasPrefix(name, link.Prefix) {
			failures = append(failures, link.Deafen(name))
		}
	}
	return errors.Join(failures...)
}

// writeFile puts a file in place at once, so that the runtime never reads half of
// it. Nothing is touched when it is there already.
func writeFile(path string, data []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// The name begins with a dot and ends otherwise than the runtime looks for.
	f, err := os.CreateTemp(filepath.Dir(path), ".conflist-*.tmp")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
