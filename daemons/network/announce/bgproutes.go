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

// routing holds which routers receive which addresses. It remembers the routers of addresses whose pool is gone,
// because these addresses stay until the controller has taken them back.
type routing struct {
	speaker *bgp.Speaker
	peers   map[netip.Addr][]bgp.Peer
}

// peersOf returns the routers for an address according to its pool. The list is empty if machines announce the address
// by ARP and NDP. isKnown reports whether a pool contains the address.
func peersOf(pools []config.Pool, a netip.Addr) (list []bgp.Peer, isKnown bool) {
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
				continue // rejected earlier by DecodePools
			}
			list = append(list, bgp.Peer{
				Address: netip.AddrPortFrom(address,
					cmp.Or(peer.Port, config.BGPPort)), ASN: peer.ASN, LocalASN: pool.BGP.ASN,
				HoldTime: time.Duration(cmp.Or(pool.BGP.HoldTimeSeconds, config.BGPHoldTimeSeconds)) * time.Second,
			})
		}
		return list, true
	}
	return nil, false
}

// routedAddresses returns the addresses of Services that are announced to routers, with their routers.
func (r *routing) routedAddresses(pools []config.Pool, services []*corev1.Service) map[netip.Addr][]bgp.Peer {
	peers := map[netip.Addr][]bgp.Peer{}
	for _, s := range services {
		for _, a := range loadbalancer.AnnouncedAddresses(s) {
			list, ok := peersOf(pools, a)
			if !ok {
				list = r.peers[a]
			}
			if len(list) > 0 {
				peers[a] = list
			}
		}
	}
	return peers
}

// Routes returns the addresses that this machine announces to each router. A machine that is eligible announces all
// addresses, with one exception: an address of Services with externalTrafficPolicy Local needs ready endpoints of each
// of these Services on the machine, in the address's family. The result also contains routers without addresses.
func Routes(
	self string,
	peers map[netip.Addr][]bgp.Peer,
	services []*corev1.Service,
	nodes []*corev1.Node,
	ready localNodes,
) map[bgp.Peer][]netip.Addr {
	takes := map[netip.Addr]bool{}
	able := slices.Contains(eligibleMachines(nodes), self)
	for a := range peers {
		takes[a] = able
	}
	for _, s := range services {
		for _, a := range loadbalancer.AnnouncedAddresses(s) {
			if takes[a] && isLocal(s) && !ready(s, a)[self] {
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

// updateSessions updates the sessions with routers. It keeps a session with every peer of a pool, even if no Service
// has an address of the pool. A misconfiguration thereby shows early.
func (a *Announcer) updateSessions(
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
			if _, ok := routes[peer]; !ok {
				routes[peer] = nil
			}
		}
	}
	a.routing.peers = peers
	a.routing.speaker.Set(ctx, bgpIdentity(a.Self, nodes), routes)
}

// bgpIdentity returns this machine's identity for BGP.
func bgpIdentity(self string, nodes []*corev1.Node) (m bgp.Machine) {
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
	if !m.Identifier.IsValid() { // any number works that no other machine has
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(hashText(self))|1)
		m.Identifier = netip.AddrFrom4(b)
	}
	return m
}
