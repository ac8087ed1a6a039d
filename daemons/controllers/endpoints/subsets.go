package endpoints

import (
	"net/netip"
	"sort"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/daemons/controllers/loop"
)

// Subsets groups a service's pods by the ports on which they serve it.
func Subsets(service *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	var subsets []corev1.EndpointSubset
	sorted := append([]*corev1.Pod(nil), pods...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Status.PodIP < sorted[j].Status.PodIP })
	for _, pod := range sorted {
		address := addressOf(pod, serviceFamilies(service)[0])
		ready, _ := loop.IsReady(pod)
		if address == "" || pod.DeletionTimestamp != nil && !service.Spec.PublishNotReadyAddresses {
			continue
		}
		served := servicePorts(service, pod)
		if len(served) == 0 && len(service.Spec.Ports) > 0 {
			continue // the pod has none of the named ports
		}
		a := corev1.EndpointAddress{
			IP:        address,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		if pod.Spec.NodeName != "" {
			node := pod.Spec.NodeName
			a.NodeName = &node
		}
		if pod.Spec.Hostname != "" && pod.Spec.Subdomain == service.Name {
			a.Hostname = pod.Spec.Hostname
		}
		subset := subsetFor(&subsets, served)
		if ready || service.Spec.PublishNotReadyAddresses {
			subset.Addresses = append(subset.Addresses, a)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, a)
		}
	}
	return subsets
}

func subsetFor(subsets *[]corev1.EndpointSubset, ports []corev1.EndpointPort) *corev1.EndpointSubset {
	for i := range *subsets {
		if apiequality.Semantic.DeepEqual((*subsets)[i].Ports, ports) {
			return &(*subsets)[i]
		}
	}
	*subsets = append(*subsets, corev1.EndpointSubset{Ports: ports})
	return &(*subsets)[len(*subsets)-1]
}

// servicePorts returns the service's ports as one pod serves them. A named target port that the pod does not have is
// left out.
func servicePorts(service *corev1.Service, pod *corev1.Pod) []corev1.EndpointPort {
	var out []corev1.EndpointPort
	for _, p := range service.Spec.Ports {
		if number, ok := targetPort(p, pod); ok {
			out = append(out,
				corev1.EndpointPort{Name: p.Name, Port: number, Protocol: p.Protocol, AppProtocol: p.AppProtocol})
		}
	}
	return out
}

func targetPort(p corev1.ServicePort, pod *corev1.Pod) (int32, bool) {
	if p.TargetPort.Type == intstr.Int {
		if p.TargetPort.IntVal == 0 {
			return p.Port, true
		}
		return p.TargetPort.IntVal, true
	}
	for _, c := range pod.Spec.Containers {
		if number, ok := namedPort(c, p); ok {
			return number, true
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue // it has ended before the pod serves
		}
		if number, ok := namedPort(c, p); ok {
			return number, true
		}
	}
	return 0, false
}

func namedPort(c corev1.Container, p corev1.ServicePort) (int32, bool) {
	for _, cp := range c.Ports {
		if cp.Name == p.TargetPort.StrVal && cp.Protocol == p.Protocol {
			return cp.ContainerPort, true
		}
	}
	return 0, false
}

// serviceFamilies returns the service's IP families. A service from before that field existed has the family of its
// cluster IP.
func serviceFamilies(service *corev1.Service) []corev1.IPFamily {
	if len(service.Spec.IPFamilies) > 0 {
		return service.Spec.IPFamilies
	}
	if ip, err := netip.ParseAddr(service.Spec.ClusterIP); err == nil && ip.Is6() {
		return []corev1.IPFamily{corev1.IPv6Protocol}
	}
	return []corev1.IPFamily{corev1.IPv4Protocol}
}

// addressOf returns a pod's address of a family. It returns "" if the pod has none yet or has finished.
func addressOf(pod *corev1.Pod, family corev1.IPFamily) string {
	if isFinished(pod) {
		return ""
	}
	all := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		all = append(all, ip.IP)
	}
	for _, text := range all {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() == (family == corev1.IPv4Protocol) {
			return text
		}
	}
	return ""
}
