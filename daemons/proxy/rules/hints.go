package rules

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// backend is the state of an address behind a port.
type backend struct {
	local   bool // on this machine
	unknown bool // its node is unknown
	hints   *discoveryv1.EndpointHints
}

// nodes returns the nodes in a backend's hints.
func (b backend) nodes() (names []string) {
	if b.hints != nil {
		for _, n := range b.hints.ForNodes {
			names = append(names, n.Name)
		}
	}
	return names
}

// zones returns the zones in a backend's hints.
func (b backend) zones() (names []string) {
	if b.hints != nil {
		for _, z := range b.hints.ForZones {
			names = append(names, z.Name)
		}
	}
	return names
}

// hintedBackends returns the ready backends for a machine: first its own backends that have a hint for it, else those
// with a hint for its node, else those for its zone, else all. Hints of one kind are used only if every backend has one
// and some match. Otherwise, while EndpointSlices are inconsistent or a zone has no backends, a client could have no
// backend.
//
// Backends of this machine with a hint for it are used without regard to other backends. A daemon on another machine,
// which can change its own hint, therefore cannot take over traffic that this machine serves itself, such as DNS.
func hintedBackends(ready map[netip.AddrPort]backend, at Location) map[netip.AddrPort]backend {
	own := map[netip.AddrPort]backend{}
	for to, b := range ready {
		if b.local && slices.Contains(b.nodes(), at.Node) {
			own[to] = b
		}
	}
	if len(own) > 0 {
		return own
	}
	if mine, all := hintedFor(ready, backend.nodes, at.Node); all && len(mine) > 0 {
		return mine
	}
	if mine, all := hintedFor(ready, backend.zones, at.Zone); all && len(mine) > 0 {
		return mine
	}
	return ready
}

// hintedFor returns the backends whose hints contain ours, and whether every backend has hints. names returns a
// backend's hints of one kind.
func hintedFor(
	ready map[netip.AddrPort]backend,
	names func(backend) []string,
	ours string,
) (mine map[netip.AddrPort]backend, all bool) {
	mine = map[netip.AddrPort]backend{}
	for to, b := range ready {
		list := names(b)
		if len(list) == 0 {
			return nil, false
		}
		if slices.Contains(list, ours) {
			mine[to] = b
		}
	}
	return mine, true
}
