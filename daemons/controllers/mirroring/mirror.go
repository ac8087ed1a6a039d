package mirroring

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"clusterctl/daemons/controllers/endpoints"
)

const (
	managedBy = "endpointslicemirroring-controller.k8s.io"
	// maxPerSubset is the maximum number of addresses that are mirrored from a subset, and that a slice holds. The API
	// allows no more.
	maxPerSubset = 1000
)

// Mirrored holds the changes to the slices of Endpoints, and the number of addresses that are left out.
type Mirrored struct {
	endpoints.Changes
	Invalid int // invalid addresses
	Skipped int // addresses that are left out, including invalid ones
}

// sliceGroup holds the endpoints that can share slices: addresses of one family with the same ports.
type sliceGroup struct {
	kind      discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// Mirror returns the writes that turn the existing slices into a mirror of e.
func Mirror(e *corev1.Endpoints, existing []*discoveryv1.EndpointSlice) Mirrored {
	m := Mirrored{}
	free := liveSlices(existing)
	for _, p := range m.groupAddresses(e) {
		for len(p.endpoints) > 0 {
			n := min(maxPerSubset, len(p.endpoints))
			want := newSlice(e, p.kind, p.ports)
			want.Endpoints, p.endpoints = p.endpoints[:n:n], p.endpoints[n:]
			at := slices.IndexFunc(free, func(s *discoveryv1.EndpointSlice) bool {
				return s.AddressType == p.kind && apiequality.Semantic.DeepEqual(s.Ports, p.ports)
			})
			if at < 0 {
				m.Create = append(m.Create, want)
				continue
			}
			if current := free[at]; !sameSlice(current, want) {
				updated := current.DeepCopy()
				updated.Labels, updated.Annotations, updated.OwnerReferences = want.Labels, want.Annotations,
					want.OwnerReferences
				updated.Endpoints = want.Endpoints
				m.Update = append(m.Update, updated)
			}
			free = slices.Delete(free, at, at+1)
		}
	}
	m.Delete = free
	m.Replace()
	return m
}

// liveSlices returns the slices that are not being deleted.
func liveSlices(all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(all),
		func(s *discoveryv1.EndpointSlice) bool { return s.DeletionTimestamp != nil })
}

// groupAddresses sorts the addresses of Endpoints into parts and counts those that it leaves out. In each subset, ready
// addresses come first.
func (m *Mirrored) groupAddresses(e *corev1.Endpoints) []*sliceGroup {
	var all []*sliceGroup
	for _, subset := range e.Subsets {
		ports, added := slicePorts(subset.Ports), 0
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				if added >= maxPerSubset {
					return
				}
				endpoint, kind := endpointOf(a, ready)
				if endpoint == nil {
					m.Invalid++
					continue
				}
				added++
				at := slices.IndexFunc(
					all,
					func(p *sliceGroup) bool {
						return p.kind == kind &&
							apiequality.Semantic.DeepEqual(p.ports, ports)
					},
				)
				if at < 0 {
					at, all = len(all), append(all, &sliceGroup{kind: kind, ports: ports})
				}
				all[at].endpoints = append(all[at].endpoints, *endpoint)
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
		m.Skipped += len(subset.Addresses) + len(subset.NotReadyAddresses) - added
	}
	return all
}

// endpointOf returns the endpoint for an address, or nil if the address is invalid. Addresses with leading zeros are
// normalized.
func endpointOf(a corev1.EndpointAddress, ready bool) (*discoveryv1.Endpoint, discoveryv1.AddressType) {
	ip := netutils.ParseIPSloppy(a.IP)
	if ip == nil {
		return nil, ""
	}
	kind := discoveryv1.AddressTypeIPv4
	if ip.To4() == nil {
		kind = discoveryv1.AddressTypeIPv6
	}
	e := &discoveryv1.Endpoint{
		Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef: a.TargetRef, NodeName: a.NodeName,
	}
	if a.Hostname != "" {
		e.Hostname = &a.Hostname
	}
	return e, kind
}

func slicePorts(ports []corev1.EndpointPort) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range ports {
		out = append(out,
			discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return out
}

// newSlice returns a slice with the labels and annotations of the Endpoints, except those that describe the writing of
// the Endpoints object itself.
func newSlice(
	e *corev1.Endpoints,
	kind discoveryv1.AddressType,
	ports []discoveryv1.EndpointPort,
) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, GenerateName: e.Name + "-", Labels: map[string]string{},
			Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints")),
			},
		},
		AddressType: kind, Ports: ports,
	}
	for k, v := range e.Labels {
		s.Labels[k] = v
	}
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = e.Name, managedBy
	for k, v := range e.Annotations {
		if k != corev1.EndpointsLastChangeTriggerTime && k != corev1.LastAppliedConfigAnnotation {
			s.Annotations[k] = v
		}
	}
	return s
}

func sameSlice(current, want *discoveryv1.EndpointSlice) bool {
	return apiequality.Semantic.DeepEqual(current.Endpoints, want.Endpoints) &&
		apiequality.Semantic.DeepEqual(current.Labels, want.Labels) &&
		apiequality.Semantic.DeepEqual(current.Annotations, want.Annotations) &&
		apiequality.Semantic.DeepEqual(current.OwnerReferences, want.OwnerReferences)
}
