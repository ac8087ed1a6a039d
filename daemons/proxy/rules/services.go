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
)

// Protocol numbers.
const (
	TCP  uint8 = 6
	UDP  uint8 = 17
	SCTP uint8 = 132
)

// Port is one port of one service, with what stands behind it.
type Port struct {
	Namespace, Service, Name string
	Proto                    uint8
	Port                     uint16
	NodePort                 uint16
	ClusterIP                netip.Addr
	External                 []netip.Addr // external and load balancer addresses
	Sources                  []netip.Prefix
	ExternalLocal            bool // externalTrafficPolicy: Local
	InternalLocal            bool // internalTrafficPolicy: Local
	Affinity                 int32
	Endpoints                []Endpoint // sorted; those of the whole cluster that this machine is to use
	// Serving are Endpoints and those that hints leave to other machines: flows to them go on.
	Serving []Endpoint // sorted
	// Here are those on this machine, for traffic that stays on it: when none of them is
	// ready, those that still serve while they end, whatever there is elsewhere.
	Here []Endpoint
	// HealthPort is where load balancers ask whether this machine has endpoints; ReadyHere
	// is how many, without those that are ending: no new traffic is to come for these.
	HealthPort uint16
	ReadyHere  int
}

// used returns the endpoints that something may be sent to, sorted.
func (p *Port) used() []Endpoint {
	if !p.ExternalLocal && !p.InternalLocal {
		return p.Endpoints
	}
	return join(p.Endpoints, p.Here)
}

// alive returns the endpoints that flows may go to, sorted: those that are used, and those that other machines use.
func (p *Port) alive() []Endpoint {
	if len(p.Serving) <= len(p.Endpoints) {
		return p.used()
	}
	return join(p.Serving, p.Here)
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
}

// Key names a service port.
func (p *Port) Key() string {
	name := p.Namespace + "/" + p.Service + "/" + protocol(p.Proto)
	if p.Name != "" {
		return name + "/" + p.Name
	}
	return name + "/" + fmt.Sprint(p.Port)
}

// chain returns a name that the kernel takes, for what belongs to a service port.
func (p *Port) chain(kind string) string {
	h := fnv.New32a()
	h.Write([]byte(p.Key()))
	name := fmt.Sprintf("%s-%08X-%s", kind, h.Sum32(), p.Key())
	if len(name) > 120 {
		name = name[:120]
	}
	return name
}

// Ports works out the service ports that a machine has rules for. node is the
// machine's name, zone where it is (may be empty).
func Ports(services []*corev1.Service, slicesOf func(namespace, service string) []*discoveryv1.EndpointSlice, node, zone string) []Port {
	var ports []Port
	for _, s := range services {
		ip, err := netip.ParseAddr(s.Spec.ClusterIP)
		if err != nil || !ip.Is4() || s.Spec.Type == corev1.ServiceTypeExternalName || s.Labels["service.kubernetes.io/service-proxy-name"] != "" {
			continue
		}
		var eps []*discoveryv1.EndpointSlice
		if slicesOf != nil {
			eps = slicesOf(s.Namespace, s.Name)
		}
		for _, sp := range s.Spec.Ports {
			p := Port{
				Namespace: s.Namespace, Service: s.Name, Name: sp.Name, Proto: number(sp.Protocol), Port: uint16(sp.Port),
				NodePort: uint16(sp.NodePort), ClusterIP: ip,
				ExternalLocal: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
				InternalLocal: s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
			}
			for _, list := range [][]string{s.Spec.ExternalIPs, ingress(s)} {
				for _, a := range list {
					if ip, err := netip.ParseAddr(a); err == nil && ip.Is4() && !slices.Contains(p.External, ip) {
						p.External = append(p.External, ip)
					}
				}
			}
			if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
				for _, r := range s.Spec.LoadBalancerSourceRanges {
					if n, err := netip.ParsePrefix(strings.TrimSpace(r)); err == nil && n.Addr().Is4() {
						p.Sources = append(p.Sources, n.Masked())
					}
				}
			}
			if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
				p.Affinity = 10800
				if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
					p.Affinity = *c.ClientIP.TimeoutSeconds
				}
			}
			p.backends(eps, &sp, node, zone)
			if p.ExternalLocal && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
				p.HealthPort = uint16(s.Spec.HealthCheckNodePort)
			}
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Key(), b.Key()) })
	return ports
}

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
		return UDP
	case corev1.ProtocolSCTP:
		return SCTP
	}
	return TCP
}

// backends sets the addresses behind a port: those that are ready or, when there is none, those that still serve while they end;
// and the same of this machine alone.
func (p *Port) backends(eps []*discoveryv1.EndpointSlice, sp *corev1.ServicePort, node, zone string) {
	ready, serving := map[netip.AddrPort]backend{}, map[netip.AddrPort]backend{}
	for _, slice := range eps {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, port := range slice.Ports {
			if port.Port == nil || value(port.Name) != sp.Name || number(deref(port.Protocol)) != number(sp.Protocol) {
				continue
			}
			for _, e := range slice.Endpoints {
				for _, a := range e.Addresses {
					ip, err := netip.ParseAddr(a)
					if err != nil || !ip.Is4() {
						continue
					}
					to := netip.AddrPortFrom(ip, uint16(*port.Port))
					b := backend{e.NodeName != nil && *e.NodeName == node, e.Hints}
					if e.Conditions.Ready == nil || *e.Conditions.Ready {
						ready[to] = b
					} else if value(e.Conditions.Serving) && value(e.Conditions.Terminating) {
						serving[to] = b
					}
				}
			}
		}
	}
	p.Serving, p.Here = list(ready, false), list(ready, true)
	p.Endpoints, p.ReadyHere = p.Serving, len(p.Here)
	if hinted := hinted(ready, node, zone); len(hinted) < len(ready) {
		p.Endpoints = list(hinted, false)
	}
	if len(p.Endpoints) == 0 {
		p.Serving = list(serving, false)
		p.Endpoints = p.Serving
	}
	if len(p.Here) == 0 {
		p.Here = list(serving, true)
	}
}

func list(addresses map[netip.AddrPort]backend, localOnly bool) []Endpoint {
	list := make([]Endpoint, 0, len(addresses))
	for to, b := range addresses {
		if b.local || !localOnly {
			list = append(list, Endpoint{to, b.local})
		}
	}
	slices.SortFunc(list, func(a, b Endpoint) int { return a.To.Compare(b.To) })
	return list
}

func value[T any](v *T) (out T) {
	if v == nil {
		return out
	}
	return *v
}

func deref(p *corev1.Protocol) corev1.Protocol {
	if p == nil {
		return corev1.ProtocolTCP
	}
	return *p
}
