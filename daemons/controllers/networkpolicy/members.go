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

// plan returns the writes that bring a group's slices to its pods.
func plan(name string, packs []endpoints.Group, existing []*discoveryv1.EndpointSlice) endpoints.Changes {
	// An endpoint is its address and nothing else, so that machines are told little and a pod that becomes ready
	// changes nothing.
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
	living := slices.DeleteFunc(
		slices.Clone(existing),
		func(s *discoveryv1.EndpointSlice) bool { return s.DeletionTimestamp != nil },
	)
	var kept []*discoveryv1.EndpointSlice
	for _, g := range packs {
		kept = append(kept, packing.Fill(g, living)...)
	}
	return packing.Differences(kept, existing)
}

// addressOf is "" for what is none of ours, which then goes.
func addressOf(e discoveryv1.Endpoint) string {
	if len(e.Addresses) == 0 {
		return ""
	}
	return e.Addresses[0]
}

// sameAddresses takes an endpoint of which somebody has said more than its address for another, so that it is written
// anew.
func sameAddresses(a, b discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) && bare(a) == bare(b)
}

func bare(e discoveryv1.Endpoint) bool {
	return e.Conditions == (discoveryv1.EndpointConditions{}) && e.TargetRef == nil && e.Hostname == nil &&
		e.NodeName == nil &&
		e.Zone == nil &&
		e.Hints == nil
}

// pack sorts the addresses of pods by family and, where a group names ports, by the numbers that these have in the
// pods.
func pack(pods []*corev1.Pod, names []string) (all []endpoints.Group) {
	add := func(ip netip.Addr, ports []discoveryv1.EndpointPort) {
		kind := discoveryv1.AddressTypeIPv6
		if ip.Is4() {
			kind = discoveryv1.AddressTypeIPv4
		}
		at := slices.IndexFunc(
			all,
			func(g endpoints.Group) bool { return g.Kind == kind && apiequality.Semantic.DeepEqual(g.Ports, ports) },
		)
		if at < 0 {
			at, all = len(
				all,
			), append(
				all,
				endpoints.Group{Kind: kind, Ports: ports, Endpoints: map[string]discoveryv1.Endpoint{}},
			)
		}
		text := ip.String()
		all[at].Endpoints[text] = discoveryv1.Endpoint{Addresses: []string{text}}
	}
	for _, pod := range pods {
		lists := [][]discoveryv1.EndpointPort{nil}
		if len(names) > 0 {
			lists = portLists(pod, names)
		}
		for _, ip := range addresses(pod) {
			for _, ports := range lists {
				add(ip, ports)
			}
		}
	}
	return all
}

// addresses are those by which a pod is known to others as itself: none on its machine's network, whose addresses
// others share, and none when it has ended, for another pod may have them. Those that the API does not take in a slice
// are left out, so that a pod which says that it has one keeps nobody else's from being published.
func addresses(pod *corev1.Pod) (all []netip.Addr) {
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

// portLists are the ports of a pod that have one of some names, sorted by it. A list has each name once, as the API
// wants it: a name that a pod has for several protocols is in several lists. A pod without any of the names has no
// list.
func portLists(pod *corev1.Pod, names []string) (lists [][]discoveryv1.EndpointPort) {
	var found []corev1.ContainerPort
	look := func(c corev1.Container) {
		for _, p := range c.Ports {
			p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
			if slices.Contains(names, p.Name) &&
				!slices.ContainsFunc(
					found,
					func(f corev1.ContainerPort) bool { return f.Name == p.Name && f.Protocol == p.Protocol },
				) {
				found = append(found, p) // the first of a name and protocol counts, as it does for services
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
		nth := 0 // of its name
		for nth < i && found[i-nth-1].Name == p.Name {
			nth++
		}
		if nth == len(lists) {
			lists = append(lists, nil)
		}
		lists[nth] = append(
			lists[nth],
			discoveryv1.EndpointPort{Name: &p.Name, Port: &p.ContainerPort, Protocol: &p.Protocol},
		)
	}
	return lists
}
