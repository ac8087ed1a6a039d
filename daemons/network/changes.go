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

// changes calls poke when the machine's addresses or routes have changed in a way that may have taken ours away, or an
// interface takes packets of another size, until ctx ends. What comes and goes with each pod, as own says of addresses,
// is no such way. A link that loses its carrier loses its addresses where systemd-networkd has them, and with them all
// routes behind it; they do not come back with the link.
func changes(ctx context.Context, log *slog.Logger, own func(netip.Addr) bool, poke func()) {
	for ctx.Err() == nil {
		if err := listen(ctx, own, poke); err != nil && ctx.Err() == nil {
			log.Warn("follow the machine's addresses and routes", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			poke() // for what went by meanwhile
		}
	}
}

func listen(ctx context.Context, own func(netip.Addr) bool, poke func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 3)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	links, addresses, routes := make(
		chan netlink.LinkUpdate,
	), make(
		chan netlink.AddrUpdate,
	), make(
		chan netlink.RouteUpdate,
	)
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(),
		netlink.LinkSubscribeOptions{ErrorCallback: fail, ListExisting: true}); err != nil {
		return fmt.Errorf("follow interfaces: %w", err)
	}
	defer drain(links)
	defer cancel()
	takes := map[int32]int{} // the largest packets of interfaces, by which those of pods go
	if err := netlink.AddrSubscribeWithOptions(addresses, ctx.Done(),
		netlink.AddrSubscribeOptions{ErrorCallback: fail}); err != nil {
		return fmt.Errorf("follow addresses: %w", err)
	}
	defer drain(addresses)
	defer cancel()
	if err := netlink.RouteSubscribeWithOptions(routes, ctx.Done(),
		netlink.RouteSubscribeOptions{ErrorCallback: fail}); err != nil {
		return fmt.Errorf("follow routes: %w", err)
	}
	defer drain(routes)
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
			if was, there := takes[l.Index]; there && was != l.Attrs().MTU {
				poke()
			}
			takes[l.Index] = l.Attrs().MTU
		case a, open := <-addresses:
			if !open {
				return nil
			}
			if !ofPods(a.LinkAddress.IP, own) {
				poke()
			}
		case r, open := <-routes:
			if !open {
				return nil
			}
			ours := r.Type == unix.RTM_DELROUTE && r.Protocol == protocol
			way := r.Type == unix.RTM_NEWROUTE && r.Protocol == unix.RTPROT_KERNEL &&
				(r.Dst == nil || !ofPods(r.Dst.IP, own)) // by which the others may be reached again
			if ours || way {
				poke()
			}
		}
	}
}

// ofPods reports whether an address is one that comes and goes with pods: the gateway's, or one of their links'.
func ofPods(ip []byte, own func(netip.Addr) bool) bool {
	a, ok := netip.AddrFromSlice(ip)
	a = a.Unmap()
	return ok && (a.Is6() && a.IsLinkLocalUnicast() || a.IsMulticast() || own(a))
}

// drain lets a subscription end, whose sender may be waiting.
func drain[T any](updates <-chan T) {
	for range updates {
	}
}

// own reports whether an address is of this machine's pods.
func (d *daemon) own(a netip.Addr) bool {
	pods := d.pods.Load()
	return pods != nil && slices.ContainsFunc(*pods, func(p netip.Prefix) bool { return p.Contains(a) })
}
