package endpoints

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Topology describes the nodes as far as hints depend on them.
type Topology struct {
	Zone func(node string) string
	// ZoneCPU is the allocatable CPU of each zone in millicores. It is nil if it is not known of all nodes, or if there
	// is only one zone.
	ZoneCPU map[string]int64
	// Balanced holds the address types whose hints followed ZoneCPU at the last sync of the service.
	Balanced sets.Set[discoveryv1.AddressType]
}

// Event is an event to record for a service.
type Event struct{ Type, Reason, Message string }

// wantsBalancedHints reports whether the service's annotation asks for hints in proportion to the zones' CPU. If both
// annotations exist, the older one decides.
func wantsBalancedHints(service *corev1.Service) bool {
	mode, ok := service.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !ok {
		mode = service.Annotations[corev1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}

// setHints sets the topology hints in the slices of one address type. The annotation takes precedence over
// spec.trafficDistribution. existing are the present slices of that type.
func (p *Planned) setHints(
	service *corev1.Service,
	kind discoveryv1.AddressType,
	slices, existing []*discoveryv1.EndpointSlice,
	topology Topology,
) {
	note := func(eventType, reason, message string) {
		p.Events = append(p.Events, Event{eventType, reason, fmt.Sprintf("%s, addressType: %s", message, kind)})
	}
	before := topology.Balanced.Has(kind)
	if wantsBalancedHints(service) {
		if cause := balanceZones(slices, existing, topology.ZoneCPU); cause != "" {
			note(corev1.EventTypeWarning, "TopologyAwareHintsDisabled", cause)
			return
		}
		p.Balanced.Insert(kind)
		if !before {
			note(corev1.EventTypeNormal, "TopologyAwareHintsEnabled", "Topology Aware Hints has been enabled")
		}
		return
	}
	if before {
		note(corev1.EventTypeWarning, "TopologyAwareHintsDisabled", "Topology Aware Hints has been disabled")
	}
	if service.Spec.TrafficDistribution == nil {
		return
	}
	for _, e := range readyEndpoints(slices) {
		e.Hints = trafficHints(*service.Spec.TrafficDistribution, e)
	}
}

// trafficHints returns the hints of one endpoint for spec.trafficDistribution: for the endpoint's own node or zone.
func trafficHints(distribution string, e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	var hints discoveryv1.EndpointHints
	switch distribution {
	case corev1.ServiceTrafficDistributionPreferSameNode:
		if e.NodeName != nil {
			hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
		}
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
	default:
		return nil
	}
	if e.Zone != nil { // also with a node hint, as the next best
		hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if len(hints.ForNodes)+len(hints.ForZones) == 0 {
		return nil
	}
	return &hints
}

func readyEndpoints(slices []*discoveryv1.EndpointSlice) (list []*discoveryv1.Endpoint) {
	for _, s := range slices {
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; *e.Conditions.Ready {
				list = append(list, e)
			}
		}
	}
	return list
}
