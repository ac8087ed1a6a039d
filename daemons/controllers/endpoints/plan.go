package endpoints

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"clusterctl/daemons/controllers/loop"
)

const managedBy = "endpointslice-controller.k8s.io"

// Planned holds the changes to a service's slices and the events about their hints.
type Planned struct {
	Changes
	Events   []Event
	Balanced sets.Set[discoveryv1.AddressType] // the address types whose hints follow the zones' CPU

	Added, Removed int // endpoints
}

// Plan returns the writes that adapt a service's slices to its pods. Endpoints stay in their slice, so that a change of
// one pod changes one slice.
func Plan(
	service *corev1.Service,
	pods []*corev1.Pod,
	existing []*discoveryv1.EndpointSlice,
	topology Topology,
) Planned {
	p := Planned{Balanced: sets.New[discoveryv1.AddressType]()}
	usable := slices.DeleteFunc(slices.Clone(existing), func(s *discoveryv1.EndpointSlice) bool {
		return s.DeletionTimestamp != nil || !metav1.IsControlledBy(s, service) // of a former service with this name
	})
	packing := Packing{
		Key:   targetUID,
		Empty: true,
		New:   func(g Group) *discoveryv1.EndpointSlice { return newSlice(service, g.Kind, g.Ports) },
	}
	var kept []*discoveryv1.EndpointSlice
	for _, family := range serviceFamilies(service) {
		kind := discoveryv1.AddressType(family)
		var filled []*discoveryv1.EndpointSlice
		for _, g := range groupByPorts(service, pods, family, topology.Zone) {
			filled = append(filled, packing.Fill(g, usable)...)
		}
		now := slices.DeleteFunc(slices.Clone(usable),
			func(s *discoveryv1.EndpointSlice) bool { return s.AddressType != kind })
		p.setHints(service, kind, filled, now, topology)
		kept = append(kept, filled...)
	}
	p.Changes = packing.Differences(kept, existing)
	p.Added, _, p.Removed = p.CountMoved(existing, packing.Key, nil)
	return p
}

// groupByPorts sorts pods by the ports on which they serve the service. Without pods there is one empty group, whose
// slice shows that the service has no endpoints.
func groupByPorts(
	service *corev1.Service,
	pods []*corev1.Pod,
	family corev1.IPFamily,
	zone func(node string) string,
) []Group {
	var all []Group
	for _, pod := range pods {
		address := addressOf(pod, family)
		if address == "" {
			continue
		}
		ports := slicePorts(service, pod)
		at := slices.IndexFunc(all, func(g Group) bool { return apiequality.Semantic.DeepEqual(g.Ports, ports) })
		if at < 0 {
			at, all = len(all), append(all,
				Group{discoveryv1.AddressType(family), ports, map[string]discoveryv1.Endpoint{}})
		}
		all[at].Endpoints[string(pod.UID)] = newEndpoint(service, pod, address, zone)
	}
	if len(all) == 0 {
		all = append(all, Group{Kind: discoveryv1.AddressType(family)})
	}
	return all
}

func newSlice(
	service *corev1.Service,
	kind discoveryv1.AddressType,
	ports []discoveryv1.EndpointPort,
) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, GenerateName: service.Name + "-", Labels: sliceLabels(service),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service")),
			},
		},
		AddressType: kind, Ports: ports,
	}
}

func sliceLabels(service *corev1.Service) map[string]string {
	out := map[string]string{}
	maps.Copy(out, service.Labels)
	out[discoveryv1.LabelServiceName] = service.Name
	out[discoveryv1.LabelManagedBy] = managedBy
	labelHeadless(out, service)
	return out
}

func newEndpoint(service *corev1.Service, pod *corev1.Pod, address string,
	zone func(string) string) discoveryv1.Endpoint {
	podReady, _ := loop.IsReady(pod)
	terminating := pod.DeletionTimestamp != nil
	serving := podReady // also for services that publish addresses that are not ready
	ready := service.Spec.PublishNotReadyAddresses || podReady && !terminating
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if node := pod.Spec.NodeName; node != "" {
		e.NodeName = &node
		if z := zone(node); z != "" {
			e.Zone = &z
		}
	}
	if host := pod.Spec.Hostname; host != "" && pod.Spec.Subdomain == service.Name {
		e.Hostname = &host
	}
	return e
}

func slicePorts(service *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range servicePorts(service, pod) {
		out = append(out,
			discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return out
}

func targetUID(e discoveryv1.Endpoint) string {
	if e.TargetRef == nil {
		return ""
	}
	return string(e.TargetRef.UID)
}
