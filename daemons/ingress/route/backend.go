package route

import (
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

// Key names an object.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Protocol is what a backend speaks.
type Protocol string

const (
	HTTP  Protocol = "HTTP"
	HTTPS Protocol = "HTTPS"
	GRPC  Protocol = "GRPC"
	GRPCS Protocol = "GRPCS"
)

// BackendKey names a port of a service, spoken to in one protocol.
type BackendKey struct {
	Service  Key
	Port     string // its name or number
	Protocol Protocol
}

// Backend is one port of a service. It lives as long as a rule names it, over many tables.
type Backend struct {
	Key     BackendKey
	Targets Targets
	uses    int
}

// Targets is where the engine keeps the connections to a backend's endpoints. It is told the whole list when that
// changes.
type Targets interface {
	Update(endpoints []netip.AddrPort)
	Close()
}

func portOf(p networkingv1.ServiceBackendPort) string {
	if p.Name != "" {
		return p.Name
	}
	return strconv.Itoa(int(p.Number))
}

// servicePort finds a port by its name or number.
func servicePort(s *corev1.Service, port string) *corev1.ServicePort {
	number, err := strconv.Atoi(port)
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			continue
		}
		if err == nil && int(p.Port) == number || err != nil && p.Name == port {
			return p
		}
	}
	return nil
}

// Endpoints are the addresses that answer for a port of a service: those that are ready, or when none is, those that
// end and still serve. They are sorted.
func Endpoints(s *corev1.Service, slices []*discoveryv1.EndpointSlice, port string) []netip.AddrPort {
	if s == nil {
		return nil
	}
	p := servicePort(s, port)
	if p == nil {
		return nil
	}
	family := discoveryv1.AddressTypeIPv4
	if len(s.Spec.IPFamilies) > 0 {
		family = discoveryv1.AddressType(s.Spec.IPFamilies[0])
	}
	if found := ofFamily(slices, p.Name, family); len(found) > 0 {
		return found
	}
	// Headless services without a selector say nothing of families.
	if family == discoveryv1.AddressTypeIPv4 {
		return ofFamily(slices, p.Name, discoveryv1.AddressTypeIPv6)
	}
	return ofFamily(slices, p.Name, discoveryv1.AddressTypeIPv4)
}

// ofFamily are the addresses of one family: pods of two families are in slices of both, and would count twice.
func ofFamily(all []*discoveryv1.EndpointSlice, name string, family discoveryv1.AddressType) []netip.AddrPort {
	var ready, ending []netip.AddrPort
	for _, slice := range all {
		if slice.AddressType != family {
			continue
		}
		number := slicePort(slice, name)
		if number == 0 {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
			isEnding := ptr.Deref(e.Conditions.Terminating, false) && ptr.Deref(e.Conditions.Serving, false)
			if !isReady && !isEnding || len(e.Addresses) == 0 {
				continue
			}
			addr, err := netip.ParseAddr(e.Addresses[0]) // the first is the endpoint's; others are never set
			if err != nil {
				continue
			}
			if isReady {
				ready = append(ready, netip.AddrPortFrom(addr, number))
			} else {
				ending = append(ending, netip.AddrPortFrom(addr, number))
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

func slicePort(slice *discoveryv1.EndpointSlice, name string) uint16 {
	for _, p := range slice.Ports {
		if ptr.Deref(p.Name, "") == name && p.Port != nil &&
			ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
			return uint16(*p.Port)
		}
	}
	return 0
}
