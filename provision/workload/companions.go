package workload

import (
	"maps"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/hcl/config"
)

// namespaceLabel is the label that the API gives to each namespace, with its name.
const namespaceLabel = corev1.LabelMetadataName

// companionsOf returns the objects that belong to a workload beside its controller, its Service and its files. selector
// selects the pods.
func companionsOf(w config.Workload, meta metav1.ObjectMeta, selector map[string]string) (list []any, err error) {
	for _, c := range w.Storage {
		spec, err := claimSpec(c)
		if err != nil {
			return nil, err
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: spec,
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}}
		claim.Name = w.ClaimName(c)
		list = append(list, claim)
	}
	if name, isAdded := w.GoverningService(); isAdded && w.Kind == config.KindStatefulSet {
		service := &corev1.Service{ObjectMeta: meta, TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone,
				Selector: selector, PublishNotReadyAddresses: true}} // so that the pods find each other when they start
		service.Name = name
		list = append(list, service)
	}
	if w.Ingress != nil {
		list = append(list, newIngress(w, meta))
	}
	if w.Autoscaling != nil {
		list = append(list, newAutoscaler(w, meta))
	}
	if b := w.Budget; b != nil {
		list = append(list, &policyv1.PodDisruptionBudget{ObjectMeta: meta,
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
			Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: share(b.MinAvailable),
				MaxUnavailable: share(b.MaxUnavailable),
				Selector:       &metav1.LabelSelector{MatchLabels: selector}}})
	}
	if w.NetworkPolicy != nil {
		list = append(list, newNetworkPolicy(w, meta, selector))
	}
	return list, nil
}

func newIngress(w config.Workload, meta metav1.ObjectMeta) *networkingv1.Ingress {
	from := w.Ingress
	meta.Annotations = from.Annotations
	in := &networkingv1.Ingress{ObjectMeta: meta,
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}}
	if from.Class != "" {
		in.Spec.IngressClassName = &from.Class
	}
	if from.TLSSecret != "" {
		tls := networkingv1.IngressTLS{SecretName: from.TLSSecret}
		if from.Host != "" {
			tls.Hosts = []string{from.Host}
		}
		in.Spec.TLS = []networkingv1.IngressTLS{tls}
	}
	http := &networkingv1.HTTPIngressRuleValue{}
	for _, path := range slices.Sorted(maps.Keys(from.Paths)) {
		typ := networkingv1.PathType(from.PathType)
		http.Paths = append(http.Paths, networkingv1.HTTPIngressPath{Path: path, PathType: &typ,
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: w.Name,
				Port: networkingv1.ServiceBackendPort{Name: from.Paths[path]}}}})
	}
	in.Spec.Rules = []networkingv1.IngressRule{{Host: from.Host,
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}}}
	return in
}

func newAutoscaler(w config.Workload, meta metav1.ObjectMeta) *autoscalingv2.HorizontalPodAutoscaler {
	kind := w.Kind
	if kind == "" {
		kind = config.KindDeployment
	}
	a := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta,
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: new32(w.Autoscaling.Min),
			MaxReplicas: int32(w.Autoscaling.Max),
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: kind,
				Name: w.Name}}}
	for _, m := range []struct {
		name    corev1.ResourceName
		percent int
	}{{corev1.ResourceCPU, w.Autoscaling.CPU}, {corev1.ResourceMemory, w.Autoscaling.Memory}} {
		if m.percent > 0 {
			a.Spec.Metrics = append(a.Spec.Metrics, autoscalingv2.MetricSpec{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: m.name, Target: autoscalingv2.MetricTarget{
					Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new32(m.percent)}}})
		}
	}
	return a
}

func newNetworkPolicy(w config.Workload, meta metav1.ObjectMeta,
	selector map[string]string) *networkingv1.NetworkPolicy {
	from := w.NetworkPolicy
	p := &networkingv1.NetworkPolicy{ObjectMeta: meta,
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		Spec:     networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: selector}}}
	if from.RestrictsIngress {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	}
	if from.RestrictsEgress {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
	for _, r := range from.Ingress {
		p.Spec.Ingress = append(p.Spec.Ingress,
			networkingv1.NetworkPolicyIngressRule{From: policyPeers(r.Peers), Ports: policyPorts(r.Ports)})
	}
	for _, r := range from.Egress {
		p.Spec.Egress = append(p.Spec.Egress,
			networkingv1.NetworkPolicyEgressRule{To: policyPeers(r.Peers), Ports: policyPorts(r.Ports)})
	}
	if from.AllowsDNS {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{Ports: policyPorts(
			[]config.NetworkPort{{Port: "53", Protocol: "UDP"}, {Port: "53", Protocol: "TCP"}})})
	}
	return p
}

func policyPeers(peers []config.Peer) (list []networkingv1.NetworkPolicyPeer) {
	for _, p := range peers {
		var out networkingv1.NetworkPolicyPeer
		switch {
		case p.CIDR != "":
			out.IPBlock = &networkingv1.IPBlock{CIDR: p.CIDR}
		default:
			out.PodSelector = &metav1.LabelSelector{}
			if p.Workload != "" {
				out.PodSelector.MatchLabels = map[string]string{NameLabel: p.Workload}
			}
			if p.Namespace != "" {
				out.NamespaceSelector = &metav1.LabelSelector{}
			}
			if p.Namespace != "" && p.Namespace != "*" {
				out.NamespaceSelector.MatchLabels = map[string]string{namespaceLabel: p.Namespace}
			}
		}
		list = append(list, out)
	}
	return list
}

func policyPorts(ports []config.NetworkPort) (list []networkingv1.NetworkPolicyPort) {
	for _, p := range ports {
		protocol, port := corev1.Protocol(p.Protocol), intstr.Parse(p.Port)
		out := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port}
		if p.End > 0 {
			out.EndPort = new32(p.End)
		}
		list = append(list, out)
	}
	return list
}
