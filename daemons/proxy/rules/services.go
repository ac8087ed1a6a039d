// Package rules computes the packet rules of one machine from services and endpoints. Each service has a fragment of an
// nft.Table, which is recomputed when the service or its endpoints change. All types are plain values; nft/kernel
// writes tables to the kernel.
package rules

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"clusterctl/daemons/nft"
)

// Port is one port of one service in one family, with its endpoints.
type Port struct {
	Namespace, Service, Name string
	Proto                    uint8
	Port                     uint16
	NodePort                 uint16
	ClusterIP                netip.Addr
	External                 []netip.Addr // external and load balancer addresses
	Sources                  []netip.Prefix
	Balanced                 []netip.Addr // the load balancer addresses in External
	Limited                  bool         // only Sources may use Balanced
	ExternalLocal            bool         // externalTrafficPolicy: Local
	InternalLocal            bool         // internalTrafficPolicy: Local
	Affinity                 int32
	Endpoints                []Endpoint // sorted; endpoints of the whole cluster that this machine should use
	// Serving contains Endpoints, and those that hints leave to other machines. Flows to them continue.
	Serving []Endpoint // sorted
	// LocalEndpoints contains the endpoints on this machine, for local traffic policies. If none of them is ready, it
	// contains terminating ones that still serve, regardless of other machines.
	LocalEndpoints []Endpoint
	// Inactive contains listed endpoints that get no new connections: they are not ready, or terminate while others are
	// ready.
	Inactive []netip.AddrPort
	// HealthPort is the health check port for load balancers. ReadyLocal is the number of ready endpoints on this
	// machine. It excludes terminating endpoints, which should get no new connections.
	HealthPort uint16
	ReadyLocal int
	Relay      Relay // set in userspace mode
}

// usedEndpoints returns the sorted endpoints that may get packets.
func (p *Port) usedEndpoints() []Endpoint {
	if !p.ExternalLocal && !p.InternalLocal {
		return p.Endpoints
	}
	return mergeEndpoints(p.Endpoints, p.LocalEndpoints)
}

// FlowTargets returns the sorted endpoints to which flows may continue: those in use, and those that other machines
// use.
func (p *Port) FlowTargets() []Endpoint {
	if len(p.Serving) <= len(p.Endpoints) {
		return p.usedEndpoints()
	}
	return mergeEndpoints(p.Serving, p.LocalEndpoints)
}

// ListedAddresses returns the addresses of all endpoints in any condition.
func (p *Port) ListedAddresses() []netip.AddrPort {
	list := slices.Clone(p.Inactive)
	for _, e := range p.FlowTargets() {
		list = append(list, e.To)
	}
	return list
}

func mergeEndpoints(list, more []Endpoint) []Endpoint {
	all := slices.Clone(list)
	for _, e := range more {
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Endpoint) int { return a.To.Compare(b.To) })
	return all
}

// Endpoint is one address behind a service port.
type Endpoint struct {
	To    netip.AddrPort
	Local bool // on this machine
	// Unknown means that its node is unknown: it may be on this machine.
	Unknown bool
}

// Key returns a name that identifies the service port.
func (p *Port) Key() string {
	name := p.Namespace + "/" + p.Service + "/" + strings.ToLower(string(protocolOf(p.Proto)))
	if p.Name != "" {
		return name + "/" + p.Name
	}
	return name + "/" + fmt.Sprint(p.Port)
}

// chainName returns a valid chain or set name for a service port.
func (p *Port) chainName(kind string) string {
	h := fnv.New64a()
	h.Write([]byte(p.Key()))
	name := fmt.Sprintf("%s-%016x-%s", kind, h.Sum64(), p.Key())
	return name[:min(len(name), maxName)]
}

// maxName limits the length of names. It leaves room for an endpoint's address within the kernel's limit of 127 bytes.
const maxName = 75

// Location is the location of a machine.
type Location struct {
	Node string
	Zone string // may be empty
}

// Ports returns the ports of a service for which a machine has rules in a family. eps holds all slices of the service.
func Ports(s *corev1.Service, eps []*discoveryv1.EndpointSlice, f nft.Family, at Location) []Port {
	ip, ok := clusterIP(s, f)
	if !ok || s.Spec.Type == corev1.ServiceTypeExternalName || s.Labels[proxyName] != "" {
		return nil
	}
	ports := make([]Port, 0, len(s.Spec.Ports))
	for i := range s.Spec.Ports {
		sp := &s.Spec.Ports[i]
		p := Port{
			Namespace: s.Namespace, Service: s.Name, Name: sp.Name, Proto: protocolNumber(sp.Protocol),
			Port:     uint16(sp.Port),
			NodePort: uint16(sp.NodePort), ClusterIP: ip,
			ExternalLocal: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
			InternalLocal: s.Spec.InternalTrafficPolicy != nil &&
				*s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		}
		p.setExternal(s, f)
		if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
			p.Affinity = 10800
			if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
				p.Affinity = *c.ClientIP.TimeoutSeconds
			}
		}
		p.setEndpoints(eps, sp, f, at)
		if p.ExternalLocal && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			p.HealthPort = uint16(s.Spec.HealthCheckNodePort)
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Key(), b.Key()) })
	return ports
}

// proxyName is the label of services that another proxy handles.
const proxyName = "service.kubernetes.io/service-proxy-name"

// setExternal sets a port's external addresses, and the sources that may use them.
func (p *Port) setExternal(s *corev1.Service, f nft.Family) {
	for _, list := range [][]string{s.Spec.ExternalIPs, ingressAddresses(s)} {
		for _, a := range list {
			if ip, err := netip.ParseAddr(a); err == nil && isOfFamily(ip, f) && !slices.Contains(p.External, ip) {
				p.External = append(p.External, ip)
			}
		}
	}
	for _, a := range ingressAddresses(s) {
		if ip, err := netip.ParseAddr(a); err == nil && isOfFamily(ip, f) {
			p.Balanced = append(p.Balanced, ip)
		}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	for _, r := range s.Spec.LoadBalancerSourceRanges {
		if n, err := netip.ParsePrefix(strings.TrimSpace(r)); err == nil {
			p.Limited = true // even if all allowed sources are of the other family
			if isOfFamily(n.Addr(), f) {
				p.Sources = append(p.Sources, n.Masked())
			}
		}
	}
}

// clusterIP returns a service's cluster IP of a family.
func clusterIP(s *corev1.Service, f nft.Family) (netip.Addr, bool) {
	list := s.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{s.Spec.ClusterIP}
	}
	for _, text := range list {
		if ip, err := netip.ParseAddr(text); err == nil && isOfFamily(ip, f) {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// isOfFamily reports whether an address is of a family.
func isOfFamily(a netip.Addr, f nft.Family) bool { return a.Is4() == (f == nft.IPv4) }

func ingressAddresses(s *corev1.Service) []string {
	var ips []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" && (i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP) {
			ips = append(ips, i.IP)
		}
	}
	return ips
}

func protocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return nft.UDP
	case corev1.ProtocolSCTP:
		return nft.SCTP
	}
	return nft.TCP
}

func protocolOf(number uint8) corev1.Protocol {
	switch number {
	case nft.UDP:
		return corev1.ProtocolUDP
	case nft.SCTP:
		return corev1.ProtocolSCTP
	}
	return corev1.ProtocolTCP
}
