package networkpolicy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/peers"
	"clusterctl/daemons/controllers/endpoints"
)

// planChanges returns the writes that adapt a group's slices to its pods.
func planChanges(name string, packs []endpoints.Group, existing []*discoveryv1.EndpointSlice) endpoints.Changes {
	// An endpoint consists of its address only. Machines then receive little data, and a pod that becomes ready causes
	// no write.
	packing := endpoints.Packing{
		Key:  addressOf,
		Same: sameAddresses,
		New: func(g endpoints.Group) *discoveryv1.EndpointSlice {
			return &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: peers.Namespace, GenerateName: name + "-",
					Labels: map[string]string{peers.Label: name, discoveryv1.LabelManagedBy: peers.Manager}},
				AddressType: g.Kind, Ports: g.Ports,
			}
		},
	}
	living := slices.DeleteFunc(slices.Clone(existing),
		func(s *discoveryv1.EndpointSlice) bool { return s.DeletionTimestamp != nil })
	var kept []*discoveryv1.EndpointSlice
	for _, g := range packs {
		kept = append(kept, packing.Fill(g, living)...)
	}
	return packing.Differences(kept, existing)
}

// addressOf returns the address of an endpoint. It returns "" for an endpoint without addresses, which this controller
// did not write and removes.
func addressOf(e discoveryv1.Endpoint) string {
	if len(e.Addresses) == 0 {
		return ""
	}
	return e.Addresses[0]
}

// sameAddresses reports whether two endpoints are equal. An endpoint to which another client added fields differs, so
// that it is written again.
func sameAddresses(a, b discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) && hasNoMetadata(a) == hasNoMetadata(b)
}

func hasNoMetadata(e discoveryv1.Endpoint) bool {
	return e.Conditions == (discoveryv1.EndpointConditions{}) && e.TargetRef == nil && e.Hostname == nil &&
		e.NodeName == nil &&
		e.Zone == nil &&
		e.Hints == nil
}

// groupAddresses groups the addresses of pods by family and, if a group names ports, by the numbers of these ports in
// the pods.
func groupAddresses(pods []*corev1.Pod, names []string) (all []endpoints.Group) {
	add := func(ip netip.Addr, ports []discoveryv1.EndpointPort) {
		kind := discoveryv1.AddressTypeIPv6
		if ip.Is4() {
			kind = discoveryv1.AddressTypeIPv4
		}
		at := slices.IndexFunc(all,
			func(g endpoints.Group) bool { return g.Kind == kind && apiequality.Semantic.DeepEqual(g.Ports, ports) })
		if at < 0 {
			at, all = len(all), append(all,
				endpoints.Group{Kind: kind, Ports: ports, Endpoints: map[string]discoveryv1.Endpoint{}})
		}
		text := ip.String()
		all[at].Endpoints[text] = discoveryv1.Endpoint{Addresses: []string{text}}
	}
	for _, pod := range pods {
		lists := [][]discoveryv1.EndpointPort{nil}
		if len(names) > 0 {
			lists = portLists(pod, names)
		}
		for _, ip := range podAddresses(pod) {
			for _, ports := range lists {
				add(ip, ports)
			}
		}
	}
	return all
}

// podAddresses returns the addresses that identify a pod to others. A pod on the host network has none, because it
// shares its machine's. A pod that has ended has none, because another pod may get its address. Addresses that the API
// rejects in a slice are left out, so that they do not block the other pods of that slice.
func podAddresses(pod *corev1.Pod) (all []netip.Addr) {
	if pod == nil || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	for _, p := range pod.Status.PodIPs {
		ip, err := netip.ParseAddr(p.IP)
		if err != nil || ip.Zone() != "" {
			continue
		}
		if ip = ip.Unmap(); ip.IsUnspecified() || ip.IsLoopback() || ip.IsLinkLocalUnicast() ||
			ip.IsLinkLocalMulticast() {
			continue
		}
		all = append(all, ip)
	}
	return all
}

// portLists returns a pod's ports that have one of the names, sorted by name. The API allows each name once per list,
// so a name with several protocols appears in several lists. A pod without any of the names has no list.
func portLists(pod *corev1.Pod, names []string) (lists [][]discoveryv1.EndpointPort) {
	var found []corev1.ContainerPort
	look := func(c corev1.Container) {
		for _, p := range c.Ports {
			p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
			if slices.Contains(names, p.Name) &&
				!slices.ContainsFunc(found,
					func(f corev1.ContainerPort) bool { return f.Name == p.Name && f.Protocol == p.Protocol }) {
				found = append(found, p) // the first port of a name and protocol counts, as for services
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		look(c)
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			look(c)
		}
	}
	slices.SortFunc(found, func(a, b corev1.ContainerPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol))
	})
	for i, p := range found {
		nth := 0 // its position among the ports of the same name
		for nth < i && found[i-nth-1].Name == p.Name {
			nth++
		}
		if nth == len(lists) {
			lists = append(lists, nil)
		}
		lists[nth] = append(lists[nth],
			discoveryv1.EndpointPort{Name: &p.Name, Port: &p.ContainerPort, Protocol: &p.Protocol})
	}
	return lists
}
