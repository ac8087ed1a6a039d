// Package flows has the kernel forget what it remembers of connections to endpoints that are gone, and of no others.
package flows

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/rules"
)

// Delete has the kernel forget UDP flows to endpoints that are gone, and to services that had no endpoint: their next packets are routed by
// the rules again. Of TCP it forgets connections to endpoints that are gone which were never answered: for two minutes they would take a
// client that comes from the same port to where nobody is. Those that were answered may end in peace.
func Delete(family nft.Family, g rules.Forget) error {
	if g.Empty() {
		return nil
	}
	f := &flows{left: map[way]bool{}, all: map[way]bool{}, kept: map[way]bool{}}
	for _, e := range g.Endpoints {
		f.ways(e.Port, e.To, f.left)
	}
	for _, p := range g.Services {
		f.ways(p, netip.AddrPort{}, f.all)
		for _, e := range p.Alive() {
			f.ways(p, e.To, f.kept)
		}
	}
	kernels := map[nft.Family]netlink.InetFamily{nft.IPv4: unix.AF_INET, nft.IPv6: unix.AF_INET6}
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, kernels[family], f)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("forget flows: %w", err)
	}
	return nil
}

// synSent is the kernel's number for a TCP connection that was asked for and not answered.
const synSent = 1

// flows matches flows by where they were sent to and by who answers.
type flows struct {
	left map[way]bool
	all  map[way]bool // ways without an end: whoever answers
	kept map[way]bool // but those that lead where they should, as after a restart
}

// way is from what a service's port is reached by to an endpoint. A node port is reached at any address.
type way struct{ via, to netip.AddrPort }

func (f *flows) ways(p rules.Port, to netip.AddrPort, into map[way]bool) {
	into[way{netip.AddrPortFrom(p.ClusterIP, p.Port), to}] = true
	for _, ip := range p.External {
		into[way{netip.AddrPortFrom(ip, p.Port), to}] = true
	}
	if p.NodePort != 0 {
		into[way{netip.AddrPortFrom(netip.Addr{}, p.NodePort), to}] = true
	}
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f *flows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	unanswered := false
	if tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP); ok {
		unanswered = tcp.State == synSent
	}
	if flow.Forward.Protocol != nft.UDP && !unanswered {
		return false
	}
	asked, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	answers, ok2 := netip.AddrFromSlice(flow.Reverse.SrcIP)
	if !ok || !ok2 {
		return false
	}
	via := netip.AddrPortFrom(asked.Unmap(), flow.Forward.DstPort)
	to := netip.AddrPortFrom(answers.Unmap(), flow.Reverse.SrcPort)
	port := netip.AddrPortFrom(netip.Addr{}, flow.Forward.DstPort)
	// A flow that the rules have sent elsewhere differs in where it went.
	if via != to && (f.left[way{via, to}] || f.left[way{port, to}]) {
		return true
	}
	return flow.Forward.Protocol == nft.UDP && (f.all[way{via: via}] || f.all[way{via: port}]) && !f.kept[way{via, to}] && !f.kept[way{port, to}]
}
