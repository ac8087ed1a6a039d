package workload

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/hcl/config"
	"clusterctl/provision/role"
)

// base is what the cluster's own daemons need to be there besides what the API server
// makes by itself.
func base(c *config.Cluster) ([]Desired, error) {
	var typed []any
	typed = append(typed, dnsService(c), dnsEndpoints(c))
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

// dnsEndpoints says where the name servers are: they are no pods, so no selector finds them.
func dnsEndpoints(c *config.Cluster) any {
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: dnsName + "-machines", Namespace: "kube-system",
			Labels: map[string]string{discoveryv1.LabelServiceName: dnsName, discoveryv1.LabelManagedBy: Manager},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, m := range role.DNSMachines(c) {
		if m.IP.Is6() {
			slice.AddressType = discoveryv1.AddressTypeIPv6
		}
		ready := true
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{m.IP.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	for _, p := range []struct {
		name     string
		protocol corev1.Protocol
	}{{"dns", corev1.ProtocolUDP}, {"dns-tcp", corev1.ProtocolTCP}} {
		port := int32(53)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.name, Protocol: &p.protocol, Port: &port})
	}
	return slice
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
