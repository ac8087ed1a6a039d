package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// Network returns which of the nftables tables and links are there.
func (h *Host) Network(_ context.Context, tables, links []string) ([]string, error) {
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
		if slices.Contains(tables, t.Name) {
			found = append(found, "table "+t.Name)
		}
	}
	for _, name := range links {
		_, err := netlink.LinkByName(name)
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at link %s: %w", name, err)
		}
		found = append(found, "link "+name)
	}
	return found, nil
}

// ClearNetwork removes them.
func (h *Host) ClearNetwork(_ context.Context, tables, links []string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reach nftables: %w", err)
	}
	list, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("list nftables' tables: %w", err)
	}
	for _, t := range list {
		if slices.Contains(tables, t.Name) {
			conn.DelTable(t)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("remove nftables' tables: %w", err)
	}
	for _, name := range links {
		link, err := netlink.LinkByName(name)
		if err != nil {
			continue // it is not there
		}
		if err := netlink.LinkDel(link); err != nil {
			return fmt.Errorf("remove link %s: %w", name, err)
		}
	}
	return nil
}
