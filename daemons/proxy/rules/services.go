// Package rules works out, from services and endpoints, the packet rules of one machine: a fragment of an nft.Table for
// each service, which is worked out anew when the service or its endpoints change. Everything in it is a plain value;
// nft/kernel puts tables into the kernel.
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

// Port is one port of one service in one family, with what stands behind it.
type Port struct {
	Namespace, Service, Name string
	Proto                    uint8
	Port                     uint16
	NodePort                 uint16
	ClusterIP                netip.Addr
	External                 []netip.Addr // external and load balancer addresses
	Sources                  []netip.Prefix
	Balanced                 []netip.Addr // those of External that are load balancer addresses
	Limited                  bool         // nobody but Sources may use Balanced
	ExternalLocal            bool         // externalTrafficPolicy: Local
	InternalLocal            bool         // internalTrafficPolicy: Local
	Affinity                 int32
	Endpoints                []Endpoint // sorted; those of the whole cluster that this machine is to use
	// Serving are Endpoints and those that hints leave to other machines: flows to them go on.
	Serving []Endpoint // sorted
	// Here are those on this machine, for traffic that stays on it: when none of them is
	// ready, those that still serve while they end, whatever there is elsewhere.
	Here []Endpoint
	// Others are those that endpoint slices list and that nothing new is sent to: they are not ready, or end beside
	// ready ones.
	Others []netip.AddrPort
	// HealthPort is where load balancers ask whether this machine has endpoints; ReadyHere
	// is how many, without those that are ending: no new traffic is to come for these.
	HealthPort uint16
	ReadyHere  int
	Relay      Relay // set by a proxy that carries packets itself
}

// used returns the endpoints that something may be sent to, sorted.
func (p *Port) used() []Endpoint {
	if !p.ExternalLocal && !p.InternalLocal {
		return p.Endpoints
	}
	return join(p.Endpoints, p.Here)
}

// Alive returns the endpoints that flows may go to, sorted: those that are used, and those that other machines use.
func (p *Port) Alive() []Endpoint {
	if len(p.Serving) <= len(p.Endpoints) {
		return p.used()
	}
	return join(p.Serving, p.Here)
}

// Listed returns the addresses of all endpoints that there are, in whatever condition they are.
func (p *Port) Listed() []netip.AddrPort {
	list := slices.Clone(p.Others)
	for _, e := range p.Alive() {
		list = append(list, e.To)
	}
	return list
}

func join(list, more []Endpoint) []Endpoint {
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
	// Unknown is when nobody says where it is: it may be on this machine.
	Unknown bool
}

// Key names a service port.
func (p *Port) Key() string {
	name := p.Namespace + "/" + p.Service + "/" + strings.ToLower(string(word(p.Proto)))
	if p.Name != "" {
		return name + "/" + p.Name
	}
	return name + "/" + fmt.Sprint(p.Port)
}

// chain returns a name that the kernel takes, for what belongs to a service port.
func (p *Port) chain(kind string) string {
	h := fnv.New64a()
	h.Write([]byte(p.Key()))
	name := fmt.Sprintf("%s-%016x-%s", kind, h.Sum64(), p.Key())
	return name[:min(len(name), maxName)]
}

// maxName leaves room for an endpoint's address in the 127 bytes that the kernel takes.
const maxName = 75

// Place is where a machine is.
type Place struct {
	Node string
	Zone string // may be empty
}

// Ports works out the ports of a service that a machine has rules for in a family. eps are all slices of the service's
// endpoints.
func Ports(s *corev1.Service, eps []*discoveryv1.EndpointSlice, f nft.Family, at Place) []Port {
	ip, ok := clusterIP(s, f)
	if !ok || s.Spec.Type == corev1.ServiceTypeExternalName || s.Labels[proxyName] != "" {
		return nil
	}
	ports := make([]Port, 0, len(s.Spec.Ports))
	for i := range s.Spec.Ports {
		sp := &s.Spec.Ports[i]
		p := Port{
			Namespace: s.Namespace, Service: s.Name, Name: sp.Name, Proto: number(sp.Protocol), Port: uint16(sp.Port),
			NodePort: uint16(sp.NodePort), ClusterIP: ip,
			ExternalLocal: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
			InternalLocal: s.Spec.InternalTrafficPolicy != nil &&
				*s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		}
		p.outside(s, f)
		if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
			p.Affinity = 10800
			if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
				p.Affinity = *c.ClientIP.TimeoutSeconds
			}
		}
		p.backends(eps, sp, f, at)
		if p.ExternalLocal && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			p.HealthPort = uint16(s.Spec.HealthCheckNodePort)
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Key(), b.Key()) })
	return ports
}

// proxyName is the label of services that are another proxy's.
const proxyName = "service.kubernetes.io/service-proxy-name"

// outside sets the addresses outside of the cluster that lead to a port, and who may use them.
func (p *Port) outside(s *corev1.Service, f nft.Family) {
	for _, list := range [][]string{s.Spec.ExternalIPs, ingress(s)} {
		for _, a := range list {
			if ip, err := netip.ParseAddr(a); err == nil && of(ip, f) && !slices.Contains(p.External, ip) {
				p.External = append(p.External, ip)
			}
		}
	}
	for _, a := range ingress(s) {
		if ip, err := netip.ParseAddr(a); err == nil && of(ip, f) {
			p.Balanced = append(p.Balanced, ip)
		}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	for _, r := range s.Spec.LoadBalancerSourceRanges {
		if n, err := netip.ParsePrefix(strings.TrimSpace(r)); err == nil {
			p.Limited = true // also where all that are allowed are of the other family
			if of(n.Addr(), f) {
				p.Sources = append(p.Sources, n.Masked())
			}
		}
	}
}

// clusterIP is a service's own address of a family.
func clusterIP(s *corev1.Service, f nft.Family) (netip.Addr, bool) {
	list := s.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{s.Spec.ClusterIP}
	}
	for _, text := range list {
		if ip, err := netip.ParseAddr(text); err == nil && of(ip, f) {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// of reports whether an address is of a family.
func of(a netip.Addr, f nft.Family) bool { return a.Is4() == (f == nft.IPv4) }

func ingress(s *corev1.Service) []string {
	var ips []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" && (i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP) {
			ips = append(ips, i.IP)
		}
	}
	return ips
}

func number(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return nft.UDP
	case corev1.ProtocolSCTP:
		return nft.SCTP
	}
	return nft.TCP
}

func word(number uint8) corev1.Protocol {
	switch number {
	case nft.UDP:
		return corev1.ProtocolUDP
	case nft.SCTP:
		return corev1.ProtocolSCTP
	}
	return corev1.ProtocolTCP
}
