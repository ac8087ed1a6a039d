package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"clusterctl/provision/host"
)

// Network returns which of the tables, chains, links, routes and routing rules exist.
func (h *Host) Network(ctx context.Context, parts host.Network) ([]string, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("reach nftables: %w", err)
	}
	list, err := conn.ListTables()
	if err != nil {
		return nil, fmt.Errorf("list nftables' tables: %w", err)
	}
	var found []string
	for _, t := range list {
		if slices.Contains(parts.Tables, t.Name) {
			found = append(found, "table "+t.Name)
		}
	}
	for _, program := range slices.Sorted(maps.Keys(iptablesPrograms())) {
		names, _, err := listChains(ctx, program, parts.Chains)
		if err != nil {
			return nil, err
		}
		if n := len(names); n > 0 {
			found = append(found, fmt.Sprintf("%d chains of %s", n, program))
		}
	}
	for _, name := range parts.Links {
		_, err := netlink.LinkByName(name)
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read link %s: %w", name, err)
		}
		found = append(found, "link "+name)
	}
	marked, err := routes(parts.Protocol)
	if err != nil {
		return nil, err
	}
	if n := len(marked); n > 0 {
		found = append(found, fmt.Sprintf("%d routes to pods", n))
	}
	requests, err := rules(parts.Protocol)
	if err != nil {
		return nil, err
	}
	if n := len(requests); n > 0 {
		found = append(found, fmt.Sprintf("%d rules of routing", n))
	}
	return found, nil
}

// routes returns the routes with a protocol number.
func routes(protocol int) ([]netlink.Route, error) {
	if protocol == 0 {
		return nil, nil
	}
	list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL,
		&netlink.Route{Protocol: netlink.RouteProtocol(protocol)}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return list, nil
}

// rules returns the routing rules with a protocol number.
func rules(protocol int) (marked []netlink.Rule, err error) {
	if protocol == 0 {
		return nil, nil
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RuleList(family)
		if err != nil && !errors.Is(err, syscall.EAFNOSUPPORT) {
			return nil, fmt.Errorf("list rules of routing: %w", err)
		}
		for _, r := range list {
			if int(r.Protocol) == protocol {
				r.Family = family
				marked = append(marked, r)
			}
		}
	}
	return marked, nil
}

// ClearNetwork removes what Network returns.
func (h *Host) ClearNetwork(ctx context.Context, parts host.Network) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reach nftables: %w", err)
	}
	list, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("list nftables' tables: %w", err)
	}
	for _, t := range list {
		if slices.Contains(parts.Tables, t.Name) {
			conn.DelTable(t)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("remove nftables' tables: %w", err)
	}
	if err := clearChains(ctx, parts.Chains); err != nil {
		return err
	}
	for _, name := range parts.Links {
		link, err := netlink.LinkByName(name)
		if err != nil {
			continue // the link does not exist
		}
		if err := netlink.LinkDel(link); err != nil {
			return fmt.Errorf("remove link %s: %w", name, err)
		}
	}
	marked, err := routes(parts.Protocol)
	if err != nil {
		return err
	}
	for _, r := range marked {
		// a route may have been removed with its link
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("remove the route to %s: %w", r.Dst, err)
		}
	}
	requests, err := rules(parts.Protocol)
	if err != nil {
		return err
	}
	for _, r := range requests {
		if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("remove a rule of routing: %w", err)
		}
	}
	return nil
}
