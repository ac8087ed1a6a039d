package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/hcl/config"
	"clusterctl/provision/role"
)

// base is what the cluster's own daemons and people need to be there.
func base(c *config.Cluster) ([]Desired, error) {
	typed := []any{binding("kubeadm:cluster-admins", "cluster-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "kubeadm:cluster-admins"})}
	for _, name := range slices.Sorted(maps.Keys(daemonRules)) {
		rules := daemonRules[name]
		full := "clusterctl:" + name
		typed = append(typed,
			&rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: full}, Rules: rules},
			binding(full, full, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:" + name}))
	}
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

// daemonRules are what the daemons may do that upstream has no role for.
var daemonRules = map[string][]rbacv1.PolicyRule{
	"kube-network": {
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
	},
	"kube-dns": {
		{APIGroups: []string{""}, Resources: []string{"services", "endpoints", "pods", "namespaces", "nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch"}},
	},
}

func binding(name, roleName string, subject rbacv1.Subject) any {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleName},
		Subjects:   []rbacv1.Subject{subject},
	}
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
