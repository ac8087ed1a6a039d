package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// A machine without pods calls pods with its own address, which is behind a router. By the main routing table, the
// responses would leave unwrapped. rp_filter would drop the requests, because the main table's route to their sender
// does not lead through the overlay. Therefore returnTable routes packets to such machines through the overlay, for
// packets with the mark returnMark. The mark is set on requests that arrive through the overlay, and on responses to
// callers that used a pod's address. Packets that pods send on their own use the main table. So do responses to callers
// that used a port of this machine, because they leave with the machine's address, which does not pass the overlay.
const (
	returnMark     = 0x1000
	returnTable    = 99
	returnPriority = 9900 // before the main table's rule
	// manglePriority is the priority of the chain that marks packets before routing: after connection tracking, before
	// destination NAT.
	manglePriority = -150
)

// returnMarkChain returns the chain that marks requests to pods and their responses, for pods in the given clusters.
func returnMarkChain(clusters []netip.Prefix) nft.Chain {
	c := nft.Chain{Hook: &nft.Hook{Type: "filter", Name: "prerouting", Priority: manglePriority}}
	for _, p := range clusters {
		c.Rules = append(c.Rules,
			nft.Rule{nft.FromInterface{Prefix: overlayName}, nft.ToNet{Net: p}, nft.Mark{Bits: returnMark}},
			nft.Rule{nft.FromNet{Net: p}, nft.Reply{}, nft.Untranslated{}, nft.Mark{Bits: returnMark}})
	}
	return c
}

// setOverlayRoutes updates the table: one route to each address through the overlay interface, for packets from this
// machine's pods.
func setOverlayRoutes(pods []netip.Prefix, to []netip.Addr, overlay int) error {
	var failures []error
	if len(to) > 0 {
		// The reverse path check must consider the request's mark.
		failures = append(failures, setKernel("/proc/sys/net/ipv4/conf/"+overlayName+"/src_valid_mark", "1"))
	}
	existing, err := overlayRoutes()
	if err != nil {
		return err
	}
	for _, a := range to {
		r := &netlink.Route{
			Dst:       toIPNet(netip.PrefixFrom(a, a.BitLen())),
			LinkIndex: overlay,
			Table:     returnTable,
			Protocol:  routeProtocol,
			Scope:     netlink.SCOPE_LINK,
		}
		if at := slices.IndexFunc(existing,
			func(h netlink.Route) bool { return h.Dst.String() == r.Dst.String() }); at >= 0 {
			route := existing[at]
			existing = slices.Delete(existing, at, at+1)
			if route.LinkIndex == overlay {
				continue
			}
		}
		if err := netlink.RouteReplace(r); err != nil {
			failures = append(failures, fmt.Errorf("have pods answer %s through %s: %w", a, overlayName, err))
		}
	}
	failures = append(failures, setRoutingRules(pods, to))
	for _, r := range existing {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			failures = append(failures, fmt.Errorf("forget that %s is answered through %s: %w", r.Dst, overlayName,
				err))
		}
	}
	return errors.Join(failures...)
}

// overlayRoutes returns this daemon's routes in the table.
func overlayRoutes() ([]netlink.Route, error) {
	list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL,
		&netlink.Route{Table: returnTable, Protocol: routeProtocol},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list the routes of answers: %w", err)
	}
	return slices.DeleteFunc(list, func(r netlink.Route) bool { return r.Dst == nil }), nil
}

// routedAddresses returns the addresses that the kernel currently routes through the overlay by the table.
func routedAddresses() (list []netip.Addr, err error) {
	existing, err := overlayRoutes()
	for _, r := range existing {
		if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			list = append(list, a.Unmap())
		}
	}
	return list, err
}

// setRoutingRules adds the routing rules that use the table for packets of pods. A family gets a rule only if the table
// has a route of that family.
func setRoutingRules(pods []netip.Prefix, to []netip.Addr) error {
	var failures []error
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RuleListFiltered(family, &netlink.Rule{Table: returnTable}, netlink.RT_FILTER_TABLE)
		if err != nil &&
			!errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without the family or without routing rules has none
			failures = append(failures, fmt.Errorf("list the rules of routing: %w", err))
			continue
		}
		of := func(a netip.Addr) bool { return a.Is4() == (family == netlink.FAMILY_V4) }
		for _, p := range pods {
			if !of(p.Addr()) || !slices.ContainsFunc(to, of) {
				continue
			}
			r, mask := netlink.NewRule(), uint32(returnMark)
			r.Family, r.Table, r.Priority, r.Protocol = family, returnTable, returnPriority, uint8(routeProtocol)
			r.Mark, r.Mask, r.Src = returnMark, &mask, toIPNet(p)
			at := slices.IndexFunc(list, func(h netlink.Rule) bool {
				return h.Protocol == r.Protocol && h.Priority == r.Priority && h.Mark == r.Mark && h.Mask != nil &&
					*h.Mask == mask &&
					h.Src != nil &&
					h.Src.String() == r.Src.String()
			})
			if at >= 0 {
				list = slices.Delete(list, at, at+1)
			} else if err := netlink.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
				failures = append(failures, fmt.Errorf("have answers of pods in %s looked up in table %d: "+
					"%w", p, returnTable, err))
			}
		}
		for _, r := range list {
			if r.Protocol != uint8(routeProtocol) {
				continue // belongs to another program
			}
			r.Family = family
			if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
				failures = append(failures, fmt.Errorf("remove the rule of table %d: %w", returnTable, err))
			}
		}
	}
	return errors.Join(failures...)
}
