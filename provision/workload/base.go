package workload

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/hcl/config"
)

// base is what the cluster's own daemons need to be there besides what the API server
// makes by itself.
func base(c *config.Cluster) ([]Desired, error) {
	typed := []any{dnsService(c)}
	for _, m := range c.Machines {
		if m.Has(config.RoleNode) {
			typed = append(typed, nodeLabels(m))
		}
	}
	var list []Desired
	for _, t := range typed {
		d, err := toObject("cluster."+c.Name, t)
		if err != nil {
			return nil, err
		}
		d.Keep = d.Object.GetKind() == "Node" // a node leaves with its machine
		list = append(list, d)
	}
	return list, nil
}

const dnsName = "kube-dns"

func dnsService(c *config.Cluster) any {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: dnsName, Namespace: "kube-system", Labels: map[string]string{"k8s-app": dnsName, "kubernetes.io/name": "CoreDNS"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: c.ServiceIP(10).String(),
			Ports: []corev1.ServicePort{
				{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(53)},
				{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(53)},
			},
		},
	}
}

// nodeLabels are a node's labels as declared, among them those that it may not give itself.
func nodeLabels(m config.Machine) any {
	labels := maps.Clone(m.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if m.Has(config.RoleControlPlane) {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}
	return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": m.Name, "labels": labels}}
}
