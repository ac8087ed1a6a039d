package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

func usesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func usesClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

// prepareServiceUpdate keeps what was allocated and the client did not mention, and
// drops what belonged to the old type and the client merely sent back.
func prepareServiceUpdate(s, old *corev1.Service) {
	s.Status = old.Status
	keepAllocated(s, old)
	dropOfOldType(s, old)
}

func keepAllocated(s, old *corev1.Service) {
	if usesClusterIP(s) && usesClusterIP(old) {
		if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = old.Spec.ClusterIP, slices.Clone(old.Spec.ClusterIPs)
		} else if s.Spec.ClusterIP == old.Spec.ClusterIP && len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
		if s.Spec.IPFamilyPolicy == nil {
			s.Spec.IPFamilyPolicy = old.Spec.IPFamilyPolicy
		}
		if len(s.Spec.IPFamilies) == 0 {
			s.Spec.IPFamilies = slices.Clone(old.Spec.IPFamilies)
		}
	}
	if !usesNodePorts(s) || !usesNodePorts(old) {
		return
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		for _, was := range old.Spec.Ports {
			if p.NodePort == 0 && was.Port == p.Port && was.Protocol == p.Protocol {
				p.NodePort = was.NodePort
			}
		}
	}
	if s.Spec.HealthCheckNodePort == 0 && healthChecked(s) && healthChecked(old) {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

func healthChecked(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// dropOfOldType lets a client change the type alone, as by kubectl edit: what the new
// type has no use for goes, unless it was changed in the same breath.
func dropOfOldType(s, old *corev1.Service) {
	if usesClusterIP(old) && !usesClusterIP(s) && s.Spec.ClusterIP == old.Spec.ClusterIP {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy, s.Spec.InternalTrafficPolicy = nil, nil, nil
	}
	if usesNodePorts(old) && !usesNodePorts(s) {
		for i := range s.Spec.Ports {
			if slices.ContainsFunc(old.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == s.Spec.Ports[i].NodePort }) {
				s.Spec.Ports[i].NodePort = 0
			}
		}
		if len(s.Spec.ExternalIPs) == 0 && s.Spec.ExternalTrafficPolicy == old.Spec.ExternalTrafficPolicy {
			s.Spec.ExternalTrafficPolicy = ""
		}
	}
	if healthChecked(old) && !healthChecked(s) && s.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
		s.Spec.HealthCheckNodePort = 0
	}
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if value(s.Spec.AllocateLoadBalancerNodePorts) == value(old.Spec.AllocateLoadBalancerNodePorts) {
			s.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if value(s.Spec.LoadBalancerClass) == value(old.Spec.LoadBalancerClass) {
			s.Spec.LoadBalancerClass = nil
		}
	}
}
