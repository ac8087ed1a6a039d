// Package network declares Services, endpoints, ingresses, network policies and their addresses.
package network

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func Services() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Service"),
		Resource: "services", Singular: "service", ShortNames: []string{"svc"}, Categories: []string{"all"},
		CreateOnUpdate: true,
		Namespaced:     true, StorageKey: "services/specs",
		New: kind.New[corev1.Service](), NewList: kind.New[corev1.ServiceList](),
		Default:       kind.Adapt(defaultService),
		PrepareCreate: kind.Adapt(func(s *corev1.Service) { s.Status = corev1.ServiceStatus{} }),
		PrepareUpdate: kind.AdaptUpdate(prepareServiceUpdate),
		NameErrors:    validate.DNSLabelNameErrors,
		Warnings:      kind.AdaptWarnings(serviceWarnings),
		Validate: kind.AdaptValidate(
			func(s *corev1.Service) field.ErrorList { return validateService(s, nil) },
		), ValidateUpdate: kind.AdaptValidateUpdate(validateServiceUpdate),
		Fields: kind.AdaptFields(func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		}),
		Columns: kind.NewColumns("Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector*"),
		Row:     kind.AdaptRow(serviceRow),
		Status: kind.NewStatus(func(to, from *corev1.Service) { to.Status = *from.Status.DeepCopy() },
			validateServiceStatus),
		Subresources: []string{"proxy"},
	}
}

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	value.SetEmpty(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	value.SetEmpty(&spec.Type, corev1.ServiceTypeClusterIP)
	if spec.SessionAffinity == corev1.ServiceAffinityNone {
		spec.SessionAffinityConfig = nil
	} else if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		if spec.SessionAffinityConfig == nil || spec.SessionAffinityConfig.ClientIP == nil ||
			spec.SessionAffinityConfig.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		value.SetEmpty(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	external := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	if external || (spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0) {
		value.SetEmpty(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if external || spec.Type == corev1.ServiceTypeClusterIP {
		value.SetDefault(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		value.SetDefault(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				value.SetDefault(&in.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func serviceRow(s *corev1.Service) []any {
	ip := cell.NoneText
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	} else if s.Spec.ClusterIP != "" {
		ip = s.Spec.ClusterIP
	}
	ports := make([]string, 0, len(s.Spec.Ports))
	for _, p := range s.Spec.Ports {
		text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			text = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
		ports = append(ports, text)
	}
	return []any{
		string(s.Spec.Type), ip, serviceExternal(s), cell.OrNone(strings.Join(ports, ",")),
		cell.Age(s.CreationTimestamp), cell.LabelText(s.Spec.Selector),
	}
}

func serviceExternal(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		addresses := []string{}
		for _, in := range s.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				addresses = append(addresses, in.IP)
			} else if in.Hostname != "" {
				addresses = append(addresses, in.Hostname)
			}
		}
		if addresses = append(addresses, s.Spec.ExternalIPs...); len(addresses) == 0 {
			return "<pending>"
		}
		return strings.Join(addresses, ",")
	default:
		return cell.OrNone(strings.Join(s.Spec.ExternalIPs, ","))
	}
}
