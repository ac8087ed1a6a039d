package network

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func usesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func usesClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

// prepareServiceUpdate retains allocated values that the client omitted. It drops values of the old type that the
// client merely sent back.
func prepareServiceUpdate(s, old *corev1.Service) {
	s.Status = old.Status
	copyAllocated(s, old)
	clearOldTypeFields(s, old)
}

func copyAllocated(s, old *corev1.Service) {
	syncClusterIPs(s, old)
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
		for _, before := range old.Spec.Ports {
			if p.NodePort == 0 && before.Port == p.Port && before.Protocol == p.Protocol {
				p.NodePort = before.NodePort
			}
		}
	}
	if s.Spec.HealthCheckNodePort == 0 && hasHealthCheckPort(s) && hasHealthCheckPort(old) {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// syncClusterIPs updates clusterIPs if a client changed or cleared only the old field clusterIP.
func syncClusterIPs(s, old *corev1.Service) {
	if s.Spec.ClusterIP == old.Spec.ClusterIP || !slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
		return
	}
	s.Spec.ClusterIPs = nil
	if s.Spec.ClusterIP != "" {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

func hasHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// clearOldTypeFields lets a client change only the type, as with kubectl edit. Fields that the new type does not use
// are cleared, unless the client changed them too.
func clearOldTypeFields(s, old *corev1.Service) {
	if usesClusterIP(old) && !usesClusterIP(s) && s.Spec.ClusterIP == old.Spec.ClusterIP {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy, s.Spec.InternalTrafficPolicy = nil, nil, nil
	}
	if usesNodePorts(old) && !usesNodePorts(s) {
		for i := range s.Spec.Ports {
			if slices.ContainsFunc(old.Spec.Ports,
				func(p corev1.ServicePort) bool { return p.NodePort == s.Spec.Ports[i].NodePort }) {
				s.Spec.Ports[i].NodePort = 0
			}
		}
		if len(s.Spec.ExternalIPs) == 0 && s.Spec.ExternalTrafficPolicy == old.Spec.ExternalTrafficPolicy {
			s.Spec.ExternalTrafficPolicy = ""
		}
	}
	if hasHealthCheckPort(old) && !hasHealthCheckPort(s) && s.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
		s.Spec.HealthCheckNodePort = 0
	}
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if value.OrZero(s.Spec.AllocateLoadBalancerNodePorts) == value.OrZero(old.Spec.AllocateLoadBalancerNodePorts) {
			s.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if value.OrZero(s.Spec.LoadBalancerClass) == value.OrZero(old.Spec.LoadBalancerClass) {
			s.Spec.LoadBalancerClass = nil
		}
	}
}

const unchangeableText = "may not change once set"

// validateServiceUpdate requires that a Service retains its cluster IPs while its type uses them. The load balancer
// class and the health check port are immutable too.
func validateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	errs := validateService(s, old)
	path := field.NewPath("spec")
	if usesClusterIP(s) && usesClusterIP(old) {
		if !isHeadless(s) || !isHeadless(old) {
			errs = append(errs, validateAddressesUpdate(s, old, path)...)
		}
		if !isHeadless(s) && !isHeadless(old) {
			errs = append(errs, validateFamiliesUpdate(s, old, path)...)
		}
	}
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer
	if balanced && !value.Same(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(path.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, unchangeableText))
	}
	if hasHealthCheckPort(s) && hasHealthCheckPort(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(path.Child("healthCheckNodePort"), validate.ImmutableText))
	}
	return errs
}

// validateAddressesUpdate allows a second address to be added, and to be removed together with the dual-stack policy.
// The first address is immutable.
func validateAddressesUpdate(s, old *corev1.Service, path *field.Path) field.ErrorList {
	after, before := s.Spec.ClusterIPs, old.Spec.ClusterIPs
	var errs field.ErrorList
	if len(before) > 0 && len(after) == 0 {
		errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), after,
			"primary clusterIP can not be unset"))
	}
	for i := range min(len(after), len(before)) {
		if after[i] != before[i] {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(i), after, unchangeableText))
		}
	}
	if len(before) > len(after) && len(after) == 1 &&
		value.OrZero(s.Spec.IPFamilyPolicy) != corev1.IPFamilyPolicySingleStack {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	return errs
}

func validateFamiliesUpdate(s, old *corev1.Service, path *field.Path) field.ErrorList {
	after, before := s.Spec.IPFamilies, old.Spec.IPFamilies
	var errs field.ErrorList
	for i := range min(len(after), len(before)) {
		if after[i] != before[i] && (i == 0 || len(after) == len(before)) {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(0), after, unchangeableText))
		}
	}
	if len(before) > len(after) && len(after) == 1 &&
		value.OrZero(s.Spec.IPFamilyPolicy) != corev1.IPFamilyPolicySingleStack {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}
