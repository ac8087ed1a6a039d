package network

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/warn"
)

func serviceWarnings(s, _ *corev1.Service) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	path, spec := field.NewPath("spec"), &s.Spec
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		add("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints,
			corev1.AnnotationTopologyMode)
	}
	if spec.ClusterIP != "" && !isHeadless(s) {
		for i, ip := range spec.ClusterIPs {
			all = append(all, warn.Address(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	named, none := spec.Type == corev1.ServiceTypeExternalName, spec.Type == corev1.ServiceTypeClusterIP &&
		isHeadless(s)
	if none {
		if spec.LoadBalancerIP != "" {
			add("spec.loadBalancerIP is ignored for headless services")
		}
		if len(spec.ExternalIPs) > 0 {
			add("spec.externalIPs is ignored for headless services")
		}
		if spec.SessionAffinity != corev1.ServiceAffinityNone {
			add("spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range spec.ExternalIPs {
		all = append(all, warn.Address(path.Child("externalIPs").Index(i), ip)...)
	}
	if len(spec.ExternalIPs) > 0 && !none && !named {
		add("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	all = append(all, warn.Address(path.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	for i, cidr := range spec.LoadBalancerSourceRanges {
		all = append(all, warn.CIDR(path.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if named && len(spec.ExternalIPs) > 0 {
		add("spec.externalIPs is ignored when spec.type is %q", corev1.ServiceTypeExternalName)
	}
	if !named && spec.ExternalName != "" {
		add("spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName)
	}
	if value.OrZero(spec.TrafficDistribution) == corev1.ServiceTrafficDistributionPreferClose {
		add("spec.trafficDistribution: %q is deprecated; use %q", corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone)
	}
	return all
}

const oldIngressClass = "kubernetes.io/ingress.class"

func ingressWarnings(in, old *networkingv1.Ingress) []string {
	if _, ok := in.Annotations[oldIngressClass]; ok && old == nil && in.Spec.IngressClassName == nil {
		return []string{
			fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", oldIngressClass),
		}
	}
	return nil
}

func networkPolicyWarnings(p, _ *networkingv1.NetworkPolicy) []string {
	var all []string
	peers := func(list []networkingv1.NetworkPolicyPeer, at *field.Path) {
		for i, peer := range list {
			if peer.IPBlock == nil {
				continue
			}
			where := at.Index(i).Child("ipBlock")
			all = append(all, warn.CIDR(where.Child("cidr"), peer.IPBlock.CIDR)...)
			for j, cidr := range peer.IPBlock.Except {
				all = append(all, warn.CIDR(where.Child("except").Index(j), cidr)...)
			}
		}
	}
	for i, r := range p.Spec.Ingress {
		peers(r.From, field.NewPath("spec", "ingress").Index(i).Child("from"))
	}
	for i, r := range p.Spec.Egress {
		peers(r.To, field.NewPath("spec", "egress").Index(i).Child("to"))
	}
	return all
}

func endpointsWarnings(e, _ *corev1.Endpoints) []string {
	var all []string
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		for j, a := range s.Addresses {
			all = append(all, warn.Address(at.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, a := range s.NotReadyAddresses {
			all = append(all, warn.Address(at.Child("notReadyAddresses").Index(j).Child("ip"), a.IP)...)
		}
	}
	return all
}

func endpointSliceWarnings(s, old *discoveryv1.EndpointSlice) []string {
	var all []string
	if s.AddressType == discoveryv1.AddressTypeFQDN && old == nil {
		all = append(all, "spec.addressType: FQDN endpoints are deprecated")
	}
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return all
	}
	for i, e := range s.Endpoints {
		for j, a := range e.Addresses {
			all = append(all, warn.Address(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), a)...)
		}
	}
	return all
}
