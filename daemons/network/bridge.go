package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// formerBridge is the bridge of an earlier release. Pods that run during the upgrade stay on it until they are
// replaced.
const formerBridge = "cni0"

// retireBridge removes the bridge of an earlier release when no pod uses it any more. Until then it enables proxy ARP
// on it, so that pods on the bridge reach the other pods of the machine. It also sends packets between pods on the
// bridge through the packet filter, if the kernel has a module for that. It reports whether the bridge still exists. A
// bridge without an address of this machine's pods is ignored, because it belongs to another program.
func retireBridge(pods []netip.Prefix) (exists bool, err error) {
	l, err := netlink.LinkByName(formerBridge)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the former bridge of pods: %w", err)
	case l.Type() != "bridge":
		return false, nil
	}
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("read the former bridge of pods: %w", err)
	}
	if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return hasIP(pods, a.IP) }) {
		return false, nil
	}
	all, err := netlink.LinkList()
	if err != nil {
		return true, fmt.Errorf("read the former bridge of pods: %w", err)
	}
	if slices.ContainsFunc(all, func(port netlink.Link) bool { return port.Attrs().MasterIndex == l.Attrs().Index }) {
		return true, errors.Join(setKernel("/proc/sys/net/ipv4/conf/"+formerBridge+"/proxy_arp", "1"), filterBridged())
	}
	if err := netlink.LinkDel(l); err != nil && !errors.As(err, &missing) {
		return true, fmt.Errorf("remove the former bridge of pods: %w", err)
	}
	return false, nil
}

func hasIP(networks []netip.Prefix, ip []byte) bool {
	a, ok := netip.AddrFromSlice(ip)
	return ok && slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// filterBridged sends packets that the bridge forwards through the packet filter, if the kernel supports that.
func filterBridged() error {
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		if err := setKernel(filepath.Join("/proc/sys/net/bridge", name), "1"); err != nil {
			return fmt.Errorf("have packets between pods on the former bridge filtered: %w", err)
		}
	}
	return nil
}

// setKernel writes a kernel setting. It does nothing if the setting already has the value, even if it is read-only, or
// if the kernel does not have the setting.
func setKernel(path, value string) error {
	existing, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(existing)) == value {
		return nil
	}
	if err == nil {
		err = os.WriteFile(path, []byte(value), 0o644)
	}
	if err != nil {
		return fmt.Errorf("set %s to %s: %w", path, value, err)
	}
	return nil
}
