package rules

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"clusterctl/daemons/nft"
)

// setEndpoints sets the endpoints of a port: the ready ones or, if there are none, the terminating ones that still
// serve. It also sets the same for this machine only.
func (p *Port) setEndpoints(eps []*discoveryv1.EndpointSlice, sp *corev1.ServicePort, f nft.Family, at Location) {
	ready, serving := map[netip.AddrPort]backend{}, map[netip.AddrPort]backend{}
	var listed []netip.AddrPort
	for _, slice := range eps {
		if slice.AddressType != addressType(f) {
			continue
		}
		for _, port := range slice.Ports {
			if port.Port == nil || valueOf(port.Name) != sp.Name ||
				protocolNumber(protocolOrTCP(port.Protocol)) != protocolNumber(sp.Protocol) {
				continue
			}
			for _, e := range slice.Endpoints {
				for _, a := range e.Addresses {
					ip, err := netip.ParseAddr(a)
					if err != nil || !isOfFamily(ip, f) {
						continue
					}
					to := netip.AddrPortFrom(ip, uint16(*port.Port))
					listed = append(listed, to)
					b := backend{e.NodeName != nil && *e.NodeName == at.Node, e.NodeName == nil, e.Hints}
					if e.Conditions.Ready == nil || *e.Conditions.Ready {
						ready[to] = b
					} else if valueOf(e.Conditions.Serving) && valueOf(e.Conditions.Terminating) {
						serving[to] = b
					}
				}
			}
		}
	}
	p.Serving, p.LocalEndpoints = sortedEndpoints(ready, false), sortedEndpoints(ready, true)
	p.Endpoints, p.ReadyLocal = p.Serving, len(p.LocalEndpoints)
	if hinted := hintedBackends(ready, at); len(hinted) < len(ready) {
		p.Endpoints = sortedEndpoints(hinted, false)
	}
	if len(p.Endpoints) == 0 {
		p.Serving = sortedEndpoints(serving, false)
		p.Endpoints = p.Serving
	}
	if len(p.LocalEndpoints) == 0 {
		p.LocalEndpoints = sortedEndpoints(serving, true)
	}
	alive := map[netip.AddrPort]bool{}
	for _, e := range p.FlowTargets() {
		alive[e.To] = true
	}
	for _, to := range listed {
		if !alive[to] {
			alive[to] = true
			p.Inactive = append(p.Inactive, to)
		}
	}
}

func addressType(f nft.Family) discoveryv1.AddressType {
	if f == nft.IPv6 {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

func sortedEndpoints(addresses map[netip.AddrPort]backend, localOnly bool) []Endpoint {
	list := make([]Endpoint, 0, len(addresses))
	for to, b := range addresses {
		if b.local || !localOnly {
			list = append(list, Endpoint{to, b.local, b.unknown})
		}
	}
	slices.SortFunc(list, func(a, b Endpoint) int { return a.To.Compare(b.To) })
	return list
}

func valueOf[T any](v *T) (out T) {
	if v == nil {
		return out
	}
	return *v
}

func protocolOrTCP(p *corev1.Protocol) corev1.Protocol {
	if p == nil {
		return corev1.ProtocolTCP
	}
	return *p
}
