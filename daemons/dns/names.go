// Package dns is the cluster's name server. It answers for the cluster's domain from
// watched services and endpoints, as the Kubernetes DNS specification has it, and asks
// other servers about all else. How pods find it (resolv.conf) is the kubelet's, the
// service in front of it the proxy's business; this daemon publishes only its own
// address as that service's endpoint.
package dns

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Service is what is known of a service, ready to answer with.
type Service struct {
	ClusterIPs []netip.Addr // empty for a headless one
	External   string       // name that it is an alias for
	Ports      []Port
	Endpoints  []Endpoint
	NotReady   bool // publishes addresses that are not ready
}

// Port is a named port of a service.
type Port struct {
	Name, Protocol string // both in lower case; a port may have no name
	Number         uint16
}

// Endpoint is an address behind a headless service.
type Endpoint struct {
	Host  string // its own name below the service's
	Addr  netip.Addr
	Ports []Port
}

// Key names a service: namespace and name.
type Key struct{ Namespace, Name string }

// NewService works a service out from the API's objects.
func NewService(s *corev1.Service, eps []*discoveryv1.EndpointSlice) *Service {
	out := &Service{NotReady: s.Spec.PublishNotReadyAddresses}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		out.External = strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, ".")) + "."
		return out
	}
	for _, p := range s.Spec.Ports {
		out.Ports = append(out.Ports, Port{strings.ToLower(p.Name), protocol(p.Protocol), uint16(p.Port)})
	}
	ips := s.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{s.Spec.ClusterIP}
	}
	for _, a := range ips {
		if ip, err := netip.ParseAddr(a); err == nil {
			out.ClusterIPs = append(out.ClusterIPs, ip)
		}
	}
	if len(out.ClusterIPs) == 0 {
		out.Endpoints = endpoints(eps, out.NotReady)
	}
	return out
}

func protocol(p corev1.Protocol) string {
	if p == "" {
		return "tcp"
	}
	return strings.ToLower(string(p))
}

// endpoints gathers the addresses of a headless service. One that is in several
// slices, for several ports, is one endpoint.
func endpoints(eps []*discoveryv1.EndpointSlice, notReady bool) []Endpoint {
	found := map[netip.Addr]*Endpoint{}
	for _, slice := range eps {
		var ports []Port
		for _, p := range slice.Ports {
			if p.Port == nil {
				continue
			}
			port := Port{Protocol: "tcp", Number: uint16(*p.Port)}
			if p.Name != nil {
				port.Name = strings.ToLower(*p.Name)
			}
			if p.Protocol != nil {
				port.Protocol = protocol(*p.Protocol)
			}
			ports = append(ports, port)
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready && !notReady {
				continue
			}
			for _, a := range e.Addresses {
				ip, err := netip.ParseAddr(a)
				if err != nil {
					continue
				}
				one := found[ip]
				if one == nil {
					one = &Endpoint{Addr: ip, Host: dashed(ip)}
					found[ip] = one
				}
				if e.Hostname != nil && *e.Hostname != "" {
					one.Host = strings.ToLower(*e.Hostname)
				}
				for _, p := range ports {
					if !slices.Contains(one.Ports, p) {
						one.Ports = append(one.Ports, p)
					}
				}
			}
		}
	}
	list := make([]Endpoint, 0, len(found))
	for _, e := range found {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	return list
}

// dashed is an address as a label of a name.
func dashed(ip netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
}

// undashed is the address that a label stands for.
func undashed(label string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ".")); err == nil {
		return ip, true
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ":"))
	return ip, err == nil
}
