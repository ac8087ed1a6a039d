package nft

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/proxy/rules"
)

// ForgetFlows has the kernel forget UDP flows to endpoints that are gone, and to
// services that had no endpoint: their next packets are routed by the rules again. Of TCP it forgets
// connections to endpoints that are gone which were never answered: for two minutes they would take a client that comes from
// the same port to where nobody is. Those that were answered may end in peace.
func ForgetFlows(endpoints []rules.Endpoint, services []rules.Port) error {
	if len(endpoints)+len(services) == 0 {
		return nil
	}
	f := &flows{to: map[netip.AddrPort]bool{}, via: map[netip.AddrPort]bool{}, ports: map[uint16]bool{}}
	for _, e := range endpoints {
		f.to[e.To] = true
	}
	for _, p := range services {
		f.via[netip.AddrPortFrom(p.ClusterIP, p.Port)] = true
		for _, ip := range p.External {
			f.via[netip.AddrPortFrom(ip, p.Port)] = true
		}
		if p.NodePort != 0 {
			f.ports[p.NodePort] = true
		}
	}
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, f)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("forget flows: %w", err)
	}
	return nil
}

// synSent is the kernel's number for a TCP connection that was asked for and not answered.
const synSent = 1

// flows matches flows by where they were sent to (via) and by who answers (to).
type flows struct {
	to, via map[netip.AddrPort]bool
	ports   map[uint16]bool
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f *flows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	unanswered := false
	if tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP); ok {
		unanswered = tcp.State == synSent
	}
	if flow.Forward.Protocol != rules.UDP && !unanswered {
		return false
	}
	asked, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	answers, ok2 := netip.AddrFromSlice(flow.Reverse.SrcIP)
	if !ok || !ok2 {
		return false
	}
	via := netip.AddrPortFrom(asked.Unmap(), flow.Forward.DstPort)
	to := netip.AddrPortFrom(answers.Unmap(), flow.Reverse.SrcPort)
	// A flow that the rules have sent elsewhere differs in where it went.
	if unanswered {
		return f.to[to] && via != to
	}
	return f.to[to] && via != to || f.via[via] || f.ports[flow.Forward.DstPort]
}
