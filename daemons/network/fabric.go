package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeApplier applies a plan: direct routes to the pods of machines on the same link, and routes through the overlay
// to the pods of machines behind a router.
type routeApplier struct {
	id, port int // VXLAN network identifier and UDP port
	filter   *peerFilter
}

// machineRoute is a route of the machine that does not depend on pods.
type machineRoute struct {
	to     netip.Prefix
	onLink bool // without a router
}

// isOnLink reports whether the most specific route to an address has no router. It returns true if there is no route,
// because adding a route through the address then fails with a clear error.
func isOnLink(ways []machineRoute, a netip.Addr) bool {
	best, onLink := -1, true
	for _, w := range ways {
		if w.to.Contains(a) && w.to.Bits() > best {
			best, onLink = w.to.Bits(), w.onLink
		}
	}
	return onLink
}

// machineRoutes returns the machine's own routes.
func machineRoutes() (list []machineRoute, err error) {
	all, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list the machine's routes: %w", err)
	}
	for _, r := range all {
		if r.Protocol == routeProtocol || r.Type != unix.RTN_UNICAST {
			continue
		}
		to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if r.Family == netlink.FAMILY_V6 {
			to = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if r.Dst != nil {
			a, _ := netip.AddrFromSlice(r.Dst.IP)
			bits, _ := r.Dst.Mask.Size()
			to = netip.PrefixFrom(a.Unmap(), bits)
		}
		list = append(list, machineRoute{to, r.Gw == nil && len(r.MultiPath) == 0 && r.Via == nil})
	}
	return list, nil
}

// apply updates the kernel's routes according to the plan. It returns the MTU of the overlay, or 0 if it is not used,
// and the number of the plan's routes in place. An error of one route does not prevent the others.
func (f routeApplier) apply(self string, p *Plan) (largest, made int, err error) {
	ways, err := machineRoutes()
	if err != nil {
		return 0, 0, err
	}
	o := overlay{id: f.id, port: f.port, self: self, peers: map[string]routedPeer{}}
	here, err := localAddresses()
	if err != nil {
		return 0, 0, err
	}
	for i, r := range p.Routes {
		if isOnLink(ways, r.Via) {
			continue
		}
		p.Routes[i].Wrapped, p.Routes[i].Src = true, p.callSource(r.Via, here)
		current := o.peers[r.node]
		current.via = append(current.via, r.Via)
		if !current.at.IsValid() || r.Via.Is4() {
			current.at = r.Via
		}
		o.peers[r.node] = current
	}
	var answered []netip.Addr
	for name, list := range p.addressesBehindRouters(ways) {
		o.peers[name] = routedPeer{at: list[0], via: list}
		answered = append(answered, list...)
	}
	if !p.Callers.isKnown {
		if o.keptPeers, err = routedAddresses(); err != nil {
			return 0, 0, err
		}
	}
	if len(o.peers) == 0 {
		// Change the routes before the overlay is removed.
		made, err := setRoutes(p.Routes, 0)
		if len(o.keptPeers) > 0 {
			if l, err := netlink.LinkByName(overlayName); err == nil {
				largest = l.Attrs().MTU
			}
			return largest, made, errors.Join(err, f.filter.allow(f.port, o.allowedSenders(p.peerAddresses)))
		}
		return 0, made, errors.Join(err, setOverlayRoutes(p.PodCIDRs, nil, 0), removeOverlay(), f.filter.remove())
	}
	p.Unlisted = p.unlistedSources(o.sources())
	for _, c := range p.PodCIDRs {
		o.own = append(o.own, c.Addr().Next())
	}
	fenced := f.filter.allow(f.port, o.allowedSenders(p.peerAddresses)) // before the overlay exists
	l, largest, err := o.apply()
	at := 0
	if l != nil {
		at = l.Attrs().Index
	}
	made, failed := setRoutes(p.Routes, at)
	if l != nil && len(o.keptPeers) == 0 {
		failed = errors.Join(failed, setOverlayRoutes(p.PodCIDRs, answered, at))
	}
	return largest, made, errors.Join(fenced, err, failed)
}

// localAddresses returns a function that reports whether an address belongs to the machine.
func localAddresses() (func(netip.Addr) bool, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	return func(a netip.Addr) bool {
		return slices.ContainsFunc(list, func(h netlink.Addr) bool { return h.IP.Equal(a.AsSlice()) })
	}, nil
}

func (d *daemon) newRouteApplier() routeApplier {
	return routeApplier{d.cfg.VXLANID, d.cfg.VXLANPort, &d.filters.overlay}
}
