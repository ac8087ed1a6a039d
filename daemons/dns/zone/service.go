// Package zone answers for the names of a cluster, according to the Kubernetes DNS specification, from services,
// endpoints and namespaces. The caller handles the clients and all other names.
package zone

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"clusterctl/daemons/dns/wire"
)

// Key identifies a service.
type Key struct{ Namespace, Name string }

// Service holds the prepared records of a service. It is immutable.
type Service struct {
	name     []byte // full name; all names here are in lower case and wire format
	v4, v6   []byte // addresses of the service's name
	hidden   bool   // a headless service without ready endpoints, which has no names
	external []byte // target name of an ExternalName service
	ports    []port
	hosts    []host // sorted by label
	pointers map[netip.Addr][][]byte
}

// port holds the SRV records of a port.
type port struct {
	name, protocol string // labels without the underscore; name is empty for an unnamed port
	targets        []target
}

type target struct {
	data []byte // of the SRV record, starting with the port number
	host int    // index of the endpoint; -1 for the service itself
}

// portSize is the size in bytes of the port number in a target.
const portSize = 2

// targets returns the targets of the ports for which meant returns true.
func (s *Service) targets(meant func(port) bool) iter.Seq[target] {
	return func(yield func(target) bool) {
		for _, p := range s.ports {
			for i := 0; i < len(p.targets) && meant(p); i++ {
				if !yield(p.targets[i]) {
					return
				}
			}
		}
	}
}

// host is an endpoint, or several with the same hostname.
type host struct {
	label  string
	name   []byte
	v4, v6 []byte
}

// NotReadyAnnotation is the annotation that preceded the field publishNotReadyAddresses.
const NotReadyAnnotation = "service.alpha.kubernetes.io/tolerate-unready-endpoints"

// NewService returns the records of a service in a domain. It returns nil if the service cannot have a name.
func NewService(domain []byte, s *corev1.Service, slices []*discoveryv1.EndpointSlice) *Service {
	full, err := wire.Pack(s.Name + "." + s.Namespace + ".svc")
	if err != nil || len(full)-1+len(domain) > 255 {
		return nil
	}
	out := &Service{name: append(full[:len(full)-1], domain...), pointers: map[netip.Addr][][]byte{}}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		if out.external, err = wire.Pack(s.Spec.ExternalName); err != nil {
			return nil
		}
		return out
	}
	addresses := s.Spec.ClusterIPs
	if len(addresses) == 0 {
		addresses = []string{s.Spec.ClusterIP}
	}
	for _, text := range addresses {
		if ip, err := netip.ParseAddr(text); err == nil {
			out.v4, out.v6 = appendAddress(out.v4, out.v6, ip)
			out.pointers[ip] = append(out.pointers[ip], out.name)
		}
	}
	headless := len(out.v4)+len(out.v6) == 0
	ends := publishedEndpoints(slices, headless, s.Spec.PublishNotReadyAddresses ||
		s.Annotations[NotReadyAnnotation] == "true")
	out.addHosts(ends, headless)
	if headless {
		out.hidden = len(ends) == 0
		out.addHeadlessPorts(ends)
		return out
	}
	for _, p := range s.Spec.Ports {
		at := port{name: strings.ToLower(p.Name), protocol: protocolLabel(p.Protocol)}
		at.targets = []target{newTarget(uint16(p.Port), out.name, -1)}
		out.ports = append(out.ports, at)
	}
	return out
}

func appendAddress(v4, v6 []byte, ip netip.Addr) (_, _ []byte) {
	if ip = ip.Unmap(); ip.Is4() {
		return append(v4, ip.AsSlice()...), v6
	}
	return v4, append(v6, ip.AsSlice()...)
}

func newTarget(number uint16, name []byte, host int) target {
	data := make([]byte, portSize, portSize+len(name))
	binary.BigEndian.PutUint16(data, number)
	return target{append(data, name...), host}
}

func protocolLabel(p corev1.Protocol) string {
	if p == "" {
		return "tcp"
	}
	return strings.ToLower(string(p))
}

// endpoint is an address behind a service.
type endpoint struct {
	label string
	addr  netip.Addr
	ports []endpointPort
}

type endpointPort struct {
	name, protocol string
	number         uint16
}

// publishedEndpoints returns the published addresses of a service in order. An address in several slices, for several
// ports, is one endpoint. Without headless, it only returns endpoints with a hostname.
func publishedEndpoints(slicesOf []*discoveryv1.EndpointSlice, headless, notReady bool) []endpoint {
	found := map[netip.Addr]*endpoint{}
	for _, slice := range slicesOf {
		var ports []endpointPort
		for _, p := range slice.Ports {
			if p.Port == nil {
				continue
			}
			port := endpointPort{protocol: "tcp", number: uint16(*p.Port)}
			if p.Name != nil {
				port.name = strings.ToLower(*p.Name)
			}
			if p.Protocol != nil {
				port.protocol = protocolLabel(*p.Protocol)
			}
			ports = append(ports, port)
		}
		for _, e := range slice.Endpoints {
			named := e.Hostname != nil && *e.Hostname != ""
			if e.Conditions.Ready != nil && !*e.Conditions.Ready && !notReady || !headless && !named {
				continue
			}
			for _, text := range e.Addresses {
				ip, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				one := found[ip]
				if one == nil {
					one = &endpoint{addr: ip, label: addressLabel(ip)}
					found[ip] = one
				}
				if named {
					one.label = strings.ToLower(*e.Hostname)
				}
				for _, p := range ports {
					if !slices.Contains(one.ports, p) {
						one.ports = append(one.ports, p)
					}
				}
			}
		}
	}
	list := make([]endpoint, 0, len(found))
	for _, e := range found {
		if len(e.label) <= 63 {
			list = append(list, *e)
		}
	}
	slices.SortFunc(list, func(a, b endpoint) int { return a.addr.Compare(b.addr) })
	return list
}

// addHosts adds the names of endpoints below the service's name. For a headless service, it also adds their addresses
// to the service's name.
func (s *Service) addHosts(ends []endpoint, headless bool) {
	for _, e := range ends {
		if headless {
			s.v4, s.v6 = appendAddress(s.v4, s.v6, e.addr)
		}
		at, ok := s.hostIndex(e.label)
		if !ok {
			name := append(append([]byte{byte(len(e.label))}, e.label...), s.name...)
			if len(name) > 255 {
				continue
			}
			s.hosts = slices.Insert(s.hosts, at, host{label: e.label, name: name})
		}
		h := &s.hosts[at]
		h.v4, h.v6 = appendAddress(h.v4, h.v6, e.addr)
		s.pointers[e.addr] = append(s.pointers[e.addr], h.name)
	}
}

// hostIndex returns the index of an endpoint by label, and whether it exists.
func (s *Service) hostIndex(label string) (int, bool) {
	return slices.BinarySearchFunc(s.hosts, label, func(h host, l string) int { return strings.Compare(h.label, l) })
}

// addHeadlessPorts adds an SRV record for every port of every endpoint.
func (s *Service) addHeadlessPorts(ends []endpoint) {
	type seen struct {
		port   int
		host   int
		number uint16
	}
	done := map[seen]bool{}
	for _, e := range ends {
		host, ok := s.hostIndex(e.label)
		if !ok {
			continue
		}
		for _, p := range e.ports {
			at := slices.IndexFunc(s.ports, func(q port) bool { return q.name == p.name && q.protocol == p.protocol })
			if at < 0 {
				at = len(s.ports)
				s.ports = append(s.ports, port{name: p.name, protocol: p.protocol})
			}
			if this := (seen{at, host, p.number}); !done[this] {
				done[this] = true
				s.ports[at].targets = append(s.ports[at].targets, newTarget(p.number, s.hosts[host].name, host))
			}
		}
	}
}

// addressLabel returns an address as a label.
func addressLabel(ip netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
}

// parseAddressLabel parses a label that addressLabel returned.
func parseAddressLabel(label string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ".")); err == nil {
		return ip, ip.Is4()
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ":"))
	return ip, err == nil && ip.Is6()
}
