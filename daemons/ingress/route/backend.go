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

// Key identifies an object.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Protocol is the protocol of a backend.
type Protocol string

const (
	HTTP  Protocol = "HTTP"
	HTTPS Protocol = "HTTPS"
	GRPC  Protocol = "GRPC"
	GRPCS Protocol = "GRPCS"
)

// BackendKey identifies a port of a service and its protocol.
type BackendKey struct {
	Service  Key
	Port     string // name or number
	Protocol Protocol
}

// Backend is one port of a service. It exists while a rule refers to it, across tables.
type Backend struct {
	Key      BackendKey
	Targets  Targets
	useCount int
}

// Targets holds the connections to a backend's endpoints. Update is called with the whole list when it changes.
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

// servicePort returns the TCP port with a name or number, or nil.
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

// Endpoints returns the sorted endpoints of a service's port: the ready ones or, if there are none, the terminating
// ones that still serve.
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
	if found := familyEndpoints(slices, p.Name, family); len(found) > 0 {
		return found
	}
	// A headless service without a selector does not declare its families.
	if family == discoveryv1.AddressTypeIPv4 {
		return familyEndpoints(slices, p.Name, discoveryv1.AddressTypeIPv6)
	}
	return familyEndpoints(slices, p.Name, discoveryv1.AddressTypeIPv4)
}

// familyEndpoints returns the endpoints of one family, because dual-stack pods are in slices of both families and would
// count twice.
func familyEndpoints(all []*discoveryv1.EndpointSlice, name string, family discoveryv1.AddressType) []netip.AddrPort {
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
			addr, err := netip.ParseAddr(e.Addresses[0]) // only the first address is used
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
