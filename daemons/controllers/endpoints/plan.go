package endpoints

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"clusterctl/daemons/controllers/loop"
)

const (
	managedBy = "endpointslice-controller.k8s.io"
	// sliceSize is how many endpoints one slice holds at most, upstream's default.
	sliceSize = 100
)

// Planned is what a service's slices need, and what is to be told of their hints.
type Planned struct {
	Changes
	Notes    []Note
	Balanced sets.Set[discoveryv1.AddressType] // the address types whose hints follow the zones' CPU
}

// group is the endpoints that can be in one slice.
type group struct {
	kind      discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints map[string]discoveryv1.Endpoint // by pod UID
}

// Plan returns the writes that bring a service's slices to its pods. Endpoints stay in
// the slice that they are in, so that one pod's change is one slice's change.
func Plan(service *corev1.Service, pods []*corev1.Pod, existing []*discoveryv1.EndpointSlice, topology Topology) Planned {
	p := Planned{Balanced: sets.New[discoveryv1.AddressType]()}
	usable := slices.DeleteFunc(slices.Clone(existing), func(s *discoveryv1.EndpointSlice) bool {
		return s.DeletionTimestamp != nil || !metav1.IsControlledBy(s, service) // of a former service of this name
	})
	for _, family := range families(service) {
		kind := discoveryv1.AddressType(family)
		now := slices.DeleteFunc(slices.Clone(usable), func(s *discoveryv1.EndpointSlice) bool { return s.AddressType != kind })
		var kept []*discoveryv1.EndpointSlice
		for _, g := range groups(service, pods, family, topology.Zone) {
			kept = append(kept, fill(service, g, now)...)
		}
		p.hint(service, kind, kept, now, topology)
		for _, slice := range kept {
			if slice.Name == "" {
				p.Create = append(p.Create, slice)
			} else if !sameSlice(slice, existing) {
				p.Update = append(p.Update, slice)
			}
		}
		usable = slices.DeleteFunc(usable, func(s *discoveryv1.EndpointSlice) bool {
			return slices.ContainsFunc(kept, func(k *discoveryv1.EndpointSlice) bool { return k.Name == s.Name })
		})
	}
	for _, slice := range existing {
		if slice.DeletionTimestamp == nil && (slices.Contains(usable, slice) || !metav1.IsControlledBy(slice, service)) {
			p.Delete = append(p.Delete, slice)
		}
	}
	return p
}

// groups sorts pods by the ports that they serve the service on. Without any there is one group that is empty: its slice says that
// there is no endpoint.
func groups(service *corev1.Service, pods []*corev1.Pod, family corev1.IPFamily, zone func(node string) string) []*group {
	var all []*group
	for _, pod := range pods {
		address := addressOf(pod, family)
		if address == "" {
			continue
		}
		ports := slicePorts(service, pod)
		at := slices.IndexFunc(all, func(g *group) bool { return apiequality.Semantic.DeepEqual(g.ports, ports) })
		if at < 0 {
			at, all = len(all), append(all, &group{discoveryv1.AddressType(family), ports, map[string]discoveryv1.Endpoint{}})
		}
		all[at].endpoints[string(pod.UID)] = endpoint(service, pod, address, zone)
	}
	if len(all) == 0 {
		all = append(all, &group{kind: discoveryv1.AddressType(family)})
	}
	return all
}

// fill returns the slices of a group: copies of those that exist, without what has gone, and with what is new where there is room;
// and new ones, which have no name yet. Slices that are not needed are left out.
func fill(service *corev1.Service, g *group, existing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var mine []*discoveryv1.EndpointSlice
	for _, slice := range existing {
		if !apiequality.Semantic.DeepEqual(slice.Ports, g.ports) {
			continue
		}
		updated := slice.DeepCopy()
		updated.Labels = sliceLabels(service)
		updated.Endpoints = nil
		for _, e := range slice.Endpoints {
			uid := targetUID(e)
			if now, ok := g.endpoints[uid]; ok {
				updated.Endpoints = append(updated.Endpoints, now)
				delete(g.endpoints, uid)
			}
		}
		mine = append(mine, updated)
	}
	rest := slices.Collect(maps.Values(g.endpoints))
	slices.SortFunc(rest, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
	// Fullest first: few slices change, and few are half empty.
	slices.SortStableFunc(mine, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(len(b.Endpoints), len(a.Endpoints)) })
	for _, slice := range mine {
		n := min(sliceSize-len(slice.Endpoints), len(rest))
		slice.Endpoints = append(slice.Endpoints, rest[:n]...)
		rest = rest[n:]
	}
	for len(rest) > 0 || len(mine) == 0 {
		n := min(sliceSize, len(rest))
		slice := newSlice(service, g.kind, g.ports)
		slice.Endpoints = rest[:n:n]
		rest = rest[n:]
		mine = append(mine, slice)
	}
	first := mine[0]
	return slices.DeleteFunc(mine, func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) == 0 && s != first })
}

func sameSlice(slice *discoveryv1.EndpointSlice, existing []*discoveryv1.EndpointSlice) bool {
	for _, e := range existing {
		if e.Name == slice.Name {
			return apiequality.Semantic.DeepEqual(e.Endpoints, slice.Endpoints) && apiequality.Semantic.DeepEqual(e.Labels, slice.Labels)
		}
	}
	return false
}

func newSlice(service *corev1.Service, kind discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, GenerateName: service.Name + "-", Labels: sliceLabels(service),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service"))},
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

func endpoint(service *corev1.Service, pod *corev1.Pod, address string, zone func(string) string) discoveryv1.Endpoint {
	podReady, _ := loop.Ready(pod)
	terminating := pod.DeletionTimestamp != nil
	serving := podReady // also where addresses that are not ready are published
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
	for _, p := range ports(service, pod) {
		out = append(out, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return out
}

func targetUID(e discoveryv1.Endpoint) string {
	if e.TargetRef == nil {
		return ""
	}
	return string(e.TargetRef.UID)
}
