package network

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// protocol marks our routes in the kernel's table, so that they are told from an
// administrator's. The number is one that no routing daemon has.
const protocol netlink.RouteProtocol = 99

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// routes returns our routes that the kernel has.
func routes() ([]Route, error) {
	list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
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
		ones, _ := r.Dst.Mask.Size()
		if ok {
			have = append(have, Route{netip.PrefixFrom(to.Unmap(), ones), via.Unmap()})
		}
	}
	return have, nil
}

// setRoutes makes our routes in the kernel what is wanted. One that cannot be made
// (its node is in another network) does not keep the others from being made.
func setRoutes(want []Route) error {
	have, err := routes()
	if err != nil {
		return err
	}
	add, remove := Diff(have, want)
	var failures []error
	for _, r := range remove {
		err := netlink.RouteDel(&netlink.Route{Dst: network(r.To), Gw: r.Via.AsSlice(), Protocol: protocol})
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			failures = append(failures, fmt.Errorf("remove the route to %s: %w", r.To, err))
		}
	}
	for _, r := range add {
		if err := netlink.RouteReplace(&netlink.Route{Dst: network(r.To), Gw: r.Via.AsSlice(), Protocol: protocol}); err != nil {
			failures = append(failures, fmt.Errorf("route %s via %s: %w", r.To, r.Via, err))
		}
	}
	return errors.Join(failures...)
}

// mtuOf returns the largest packet of the interface that has an address.
func mtuOf(ip netip.Addr) int {
	links, err := netlink.LinkList()
	if err != nil {
		return 0
	}
	for _, l := range links {
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if have, ok := netip.AddrFromSlice(a.IP); ok && have.Unmap() == ip {
				return l.Attrs().MTU
			}
		}
	}
	return 0
}

// forward lets this machine pass packets on. Where the setting is read-only but
// right, nothing is to be done.
func forward() error {
	for _, path := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		have, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // no such protocol
		}
		if err != nil {
			return err
		}
		if bytes.HasPrefix(have, []byte("1")) {
			continue
		}
		if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("turn forwarding on: %w", err)
		}
	}
	return nil
}

const tableName = "clusterctl-network"

// masquerade has what leaves the pods' networks carry the node's address, in a
// table of its own that is replaced as a whole.
func masquerade(clusters []netip.Prefix) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("set up masquerading: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName}
	c.AddTable(table) // deleting what is not there would fail
	c.DelTable(table)
	c.AddTable(table)
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	const saddr, daddr = 12, 16 // offsets in the IPv4 header
	// Groups of machines are not masqueraded: they would get the answer to themselves.
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(
		match(daddr, netip.MustParsePrefix("224.0.0.0/4"), false), &expr.Verdict{Kind: expr.VerdictReturn})})
	for _, p := range clusters {
		if p.Addr().Is4() {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(match(daddr, p, false), &expr.Verdict{Kind: expr.VerdictReturn})})
		}
	}
	for _, p := range clusters {
		if p.Addr().Is4() {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(match(saddr, p, false), &expr.Masq{FullyRandom: true})})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("set up masquerading: %w", err)
	}
	return nil
}

// masquerading reports whether the kernel has the rules of masquerade.
func masquerading(clusters []netip.Prefix) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("look at masquerading: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName}
	have, err := c.GetRules(table, &nftables.Chain{Name: "postrouting", Table: table})
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return false, fmt.Errorf("look at masquerading: %w", err)
	}
	want := 1
	for _, p := range clusters {
		if p.Addr().Is4() {
			want += 2
		}
	}
	return len(have) == want, nil
}

func match(offset uint32, p netip.Prefix, not bool) []expr.Any {
	op := expr.CmpOpEq
	if not {
		op = expr.CmpOpNeq
	}
	mask := net.CIDRMask(p.Bits(), 32)
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
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
