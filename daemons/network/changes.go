package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/network/link"
)

// watchMachine calls poke, until ctx ends, when addresses, routes or the MTU of an interface have changed and this
// daemon's routes may be affected. It ignores addresses and routes that change with each pod; own reports whether an
// address is a pod's. With systemd-networkd, a link without carrier loses its addresses and all routes through it,
// which do not come back with the link.
func watchMachine(ctx context.Context, log *slog.Logger, own func(netip.Addr) bool, poke func()) {
	for ctx.Err() == nil {
		if err := subscribe(ctx, own, poke); err != nil && ctx.Err() == nil {
			log.Warn("follow the machine's addresses and routes", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			poke() // changes may have been missed
		}
	}
}

func subscribe(ctx context.Context, own func(netip.Addr) bool, poke func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 3)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	links, addresses, routes := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate), make(
		chan netlink.RouteUpdate,
	)
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(),
		netlink.LinkSubscribeOptions{ErrorCallback: fail, ListExisting: true}); err != nil {
		return fmt.Errorf("follow interfaces: %w", err)
	}
	defer discardUpdates(links)
	defer cancel()
	takes := map[int32]int{} // MTU of the interfaces, by index, without those of pods
	if err := netlink.AddrSubscribeWithOptions(addresses, ctx.Done(),
		netlink.AddrSubscribeOptions{ErrorCallback: fail}); err != nil {
		return fmt.Errorf("follow addresses: %w", err)
	}
	defer discardUpdates(addresses)
	defer cancel()
	if err := netlink.RouteSubscribeWithOptions(routes, ctx.Done(),
		netlink.RouteSubscribeOptions{ErrorCallback: fail}); err != nil {
		return fmt.Errorf("follow routes: %w", err)
	}
	defer discardUpdates(routes)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case l, open := <-links:
			if !open {
				return nil
			}
			if l.Header.Type == unix.RTM_DELLINK || strings.HasPrefix(l.Attrs().Name, link.Prefix) {
				delete(takes, l.Index)
				continue
			}
			if before, ok := takes[l.Index]; ok && before != l.Attrs().MTU {
				poke()
			}
			takes[l.Index] = l.Attrs().MTU
		case a, open := <-addresses:
			if !open {
				return nil
			}
			if !isPodAddress(a.LinkAddress.IP, own) {
				poke()
			}
		case r, open := <-routes:
			if !open {
				return nil
			}
			ours := r.Type == unix.RTM_DELROUTE && r.Protocol == routeProtocol
			way := r.Type == unix.RTM_NEWROUTE && r.Protocol == unix.RTPROT_KERNEL &&
				(r.Dst == nil || !isPodAddress(r.Dst.IP, own)) // other machines may be reachable again
			if ours || way {
				poke()
			}
		}
	}
}

// isPodAddress reports whether an address changes with pods: the gateway's address, or one of their links.
func isPodAddress(ip []byte, own func(netip.Addr) bool) bool {
	a, ok := netip.AddrFromSlice(ip)
	a = a.Unmap()
	return ok && (a.Is6() && a.IsLinkLocalUnicast() || a.IsMulticast() || own(a))
}

// discardUpdates empties a subscription's channel until it is closed, because the sender may be blocked.
func discardUpdates[T any](updates <-chan T) {
	for range updates {
	}
}

// isPodAddress reports whether an address belongs to this machine's pods.
func (d *daemon) isPodAddress(a netip.Addr) bool {
	pods := d.pods.Load()
	return pods != nil && slices.ContainsFunc(*pods, func(p netip.Prefix) bool { return p.Contains(a) })
}
