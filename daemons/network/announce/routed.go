package announce

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/daemons/config"
	"clusterctl/daemons/network/bgp"
)

// routing says which routers are told of addresses. It remembers of what they were told, for addresses whose pool is
// gone: they stay where they are until the controller has taken them back.
type routing struct {
	speaker *bgp.Speaker
	peers   map[netip.Addr][]bgp.Peer
}

// peersOf are the routers that are told of an address of a pool; none for one that machines announce by ARP and NDP.
func peersOf(pools []config.Pool, a netip.Addr) (list []bgp.Peer, known bool) {
	for _, pool := range pools {
		if !pool.Contains(a) {
			continue
		}
		if pool.BGP == nil {
			return nil, true
		}
		for _, peer := range pool.BGP.Peers {
			address, err := netip.ParseAddr(peer.Address)
			if err != nil {
				continue // DecodePools has refused it
			}
			list = append(list, bgp.Peer{
				Address: netip.AddrPortFrom(
					address,
					cmp.Or(peer.Port, config.BGPPort),
				), ASN: peer.ASN, LocalASN: pool.BGP.ASN,
				HoldTime: time.Duration(cmp.Or(pool.BGP.HoldTimeSeconds, config.BGPHoldTimeSeconds)) * time.Second,
			})
		}
		return list, true
	}
	return nil, false
}

// divide finds the addresses of Services of which routers are told.
func (r *routing) divide(pools []config.Pool, services []*corev1.Service) map[netip.Addr][]bgp.Peer {
	peers := map[netip.Addr][]bgp.Peer{}
	for _, s := range services {
		for _, a := range loadbalancer.Announced(s) {
			list, known := peersOf(pools, a)
			if !known {
				list = r.peers[a]
			}
			if len(list) > 0 {
				peers[a] = list
			}
		}
	}
	return peers
}

// Routes are the addresses of which each router is told that this machine takes packets for them: all that any machine
// may take, and those of Services whose traffic stays where it comes to, when it has endpoints of each of them that are
// ready, of the address's family. Routers without addresses are in it, too.
func Routes(
	self string,
	peers map[netip.Addr][]bgp.Peer,
	services []*corev1.Service,
	nodes []*corev1.Node,
	ready localNodes,
) map[bgp.Peer][]netip.Addr {
	takes := map[netip.Addr]bool{}
	able := slices.Contains(eligible(nodes), self)
	for a := range peers {
		takes[a] = able
	}
	for _, s := range services {
		for _, a := range loadbalancer.Announced(s) {
			if takes[a] && staysLocal(s) && !ready(s, a)[self] {
				takes[a] = false
			}
		}
	}
	routes := map[bgp.Peer][]netip.Addr{}
	for a, list := range peers {
		for _, peer := range list {
			if routes[peer] = slices.Clip(routes[peer]); takes[a] {
				routes[peer] = append(routes[peer], a)
			}
		}
	}
	return routes
}

// route has routers told. Sessions are kept to all peers of pools, whether or not a Service has an address of theirs: a
// mistake shows early.
func (a *Announcer) route(
	ctx context.Context,
	pools []config.Pool,
	peers map[netip.Addr][]bgp.Peer,
	services []*corev1.Service,
	nodes []*corev1.Node,
	ready localNodes,
) {
	routes := Routes(a.Self, peers, services, nodes, ready)
	for _, p := range pools {
		if p.BGP == nil || len(p.Ranges) == 0 {
			continue
		}
		list, _ := peersOf(pools, p.Ranges[0].First)
		for _, peer := range list {
			if _, there := routes[peer]; !there {
				routes[peer] = nil
			}
		}
	}
	a.routing.peers = peers
	a.routing.speaker.Set(ctx, who(a.Self, nodes), routes)
}

// who is this machine among BGP speakers.
func who(self string, nodes []*corev1.Node) (m bgp.Machine) {
	for _, n := range nodes {
		if n.Name != self {
			continue
		}
		for _, at := range n.Status.Addresses {
			ip, err := netip.ParseAddr(at.Address)
			if err != nil || at.Type != corev1.NodeInternalIP ||
				slices.ContainsFunc(m.NextHops, func(h netip.Addr) bool { return h.Is4() == ip.Is4() }) {
				continue
			}
			if m.NextHops = append(m.NextHops, ip); ip.Is4() {
				m.Identifier = ip
			}
		}
	}
	if !m.Identifier.IsValid() { // any number does that no other machine has
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(hash(self))|1)
		m.Identifier = netip.AddrFrom4(b)
	}
	return m
}
