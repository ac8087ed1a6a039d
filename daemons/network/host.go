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

// routeProtocol marks this daemon's routes in the kernel, to distinguish them from an administrator's. No routing
// daemon uses the number.
const routeProtocol netlink.RouteProtocol = 99

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// kernelRoutes returns this daemon's routes in the kernel. overlay is the index of the overlay interface, 0 for none.
func kernelRoutes(overlay int) ([]Route, error) {
	list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol},
		netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var existing []Route
	for _, r := range list {
		if r.Dst == nil {
			continue
		}
		to, ok := netip.AddrFromSlice(r.Dst.IP)
		via, _ := netip.AddrFromSlice(r.Gw)
		src, _ := netip.AddrFromSlice(r.Src)
		ones, _ := r.Dst.Mask.Size()
		if ok {
			existing = append(
				existing,
				Route{
					To:      netip.PrefixFrom(to.Unmap(), ones),
					Via:     via.Unmap(),
					Wrapped: overlay != 0 && r.LinkIndex == overlay,
					Src:     src.Unmap(),
				},
			)
		}
	}
	return existing, nil
}

// setRoutes updates this daemon's routes in the kernel. An error of one route does not prevent the others. overlay is
// the index of the overlay interface, 0 if it does not exist. setRoutes returns how many routes are in place.
func setRoutes(want []Route, overlay int) (made int, err error) {
	existing, err := kernelRoutes(overlay)
	if err != nil {
		return 0, err
	}
	add, remove := Diff(existing, want)
	var failures []error
	for _, r := range remove {
		err := netlink.RouteDel(&netlink.Route{Dst: toIPNet(r.To), Gw: r.Via.AsSlice(), Protocol: routeProtocol})
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			failures = append(failures, fmt.Errorf("remove the route to %s: %w", r.To, err))
		}
	}
	made = len(want)
	for _, r := range add {
		route := &netlink.Route{Dst: toIPNet(r.To), Gw: r.Via.AsSlice(), Protocol: routeProtocol}
		if r.Wrapped {
			if overlay == 0 {
				failures = append(failures, fmt.Errorf("route %s via %s: it is behind a router, and there is no %s",
					r.To, r.Via, overlayName))
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

// mtuOf returns the smallest MTU of the interfaces that have the given addresses, or 0 if there is none.
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

// enableForwarding enables IP forwarding for the address families of the pods.
func enableForwarding(clusters []netip.Prefix) error {
	var failures []error
	for family, path := range map[bool]string{true: "/proc/sys/net/ipv4/ip_forward", false: forwarding6} {
		if !slices.ContainsFunc(clusters, func(p netip.Prefix) bool { return p.Addr().Is4() == family }) {
			continue
		}
		if path == forwarding6 {
			failures = append(failures, keepRouterAdvertisements())
		}
		failures = append(failures, setKernel(path, "1"))
	}
	return errors.Join(failures...)
}

const forwarding6 = "/proc/sys/net/ipv6/conf/all/forwarding"

// keepRouterAdvertisements keeps accepting router advertisements on interfaces that accepted them before forwarding is
// enabled. Otherwise the machine's default route would expire. Interfaces of pods never accept them (link.Deafen).
func keepRouterAdvertisements() error {
	if existing, err := os.ReadFile(forwarding6); err != nil || !bytes.HasPrefix(existing, []byte("0")) {
		return nil // IPv6 is disabled, or forwarding is already enabled by the administrator
	}
	all, err := filepath.Glob("/proc/sys/net/ipv6/conf/*/accept_ra")
	if err != nil {
		return err
	}
	var failures []error
	for _, path := range all {
		name := filepath.Base(filepath.Dir(path))
		existing, err := os.ReadFile(path)
		if name == "all" || name == "default" || strings.HasPrefix(name, link.Prefix) || err != nil ||
			!bytes.HasPrefix(existing, []byte("1")) {
			continue
		}
		failures = append(failures, setKernel(path, "2"))
	}
	return errors.Join(failures...)
}

// disableRouterAdvertisements disables router advertisements on the interfaces of pods that an earlier release has
// created.
func disableRouterAdvertisements() error {
	all, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list the interfaces of pods: %w", err)
	}
	var failures []error
	for _, l := range all {
		if name := l.Attrs().Name; name == formerBridge || strings.HasPrefix(name, link.Prefix) {
			failures = append(failures, link.IgnoreRouterAdvertisements(name))
		}
	}
	return errors.Join(failures...)
}

// writeFile writes a file atomically, so that the runtime never reads a partial one. It does nothing if the content is
// unchanged.
func writeFile(path string, data []byte) error {
	if existing, err := os.ReadFile(path); err == nil && bytes.Equal(existing, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// The runtime ignores the temporary file, because its name has another extension.
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
