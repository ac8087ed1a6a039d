package workload

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	daemons "clusterctl/daemons/config"
	"clusterctl/daemons/config/inventory"
	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// baseObjects returns the objects that the cluster's own daemons need and that the API server does not create.
func baseObjects(c *config.Cluster) ([]Desired, error) {
	typed := []any{dnsService(c)}
	if c.Ingress != nil {
		typed = append(typed, ingressService(c), ingressClass(c))
		more, err := gatewayAPI(c)
		if err != nil {
			return nil, err
		}
		typed = append(typed, more...)
	}
	gitOps, err := gitOpsObjects(c)
	if err != nil {
		return nil, err
	}
	typed = append(typed, gitOps...)
	for _, m := range c.Machines {
		if m.HasRole(config.RoleNode) {
			typed = append(typed, nodeLabels(m))
		}
	}
	if len(c.Inventory) > 0 {
		data, err := c.Inventory.Encode()
		if err != nil {
			return nil, err
		}
		typed = append(typed, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: inventory.Name, Namespace: metav1.NamespaceSystem}, Data: data})
	}
	if len(c.Pools) > 0 || c.HadPools && !slices.ContainsFunc(c.Objects, declaresPools) {
		pools, err := poolsConfigMap(c)
		if err != nil {
			return nil, err
		}
		typed = append(typed, pools)
	}
	var list []Desired
	for _, t := range typed {
		d, err := toObject("cluster."+c.Name, t)
		if err != nil {
			return nil, err
		}
		switch kind := d.Object.GetKind(); {
		case kind == "Node",
			kind == "CustomResourceDefinition":
			// A Node is deleted with its machine. Deleting a definition would delete all its objects.
			d.IsNeverPruned = true
		case isInventory(d.reference()): // machines are removed from it one by one
			d.IsNeverPruned = true
		}
		list = append(list, d)
	}
	return list, nil
}

// isInventory reports whether an object is the cluster's inventory of machines.
func isInventory(o state.Object) bool {
	return o.Kind == "ConfigMap" && o.Namespace == metav1.NamespaceSystem && o.Name == inventory.Name
}

// poolsConfigMap returns the ConfigMap of addresses for services of type LoadBalancer. It is applied even without
// pools, because daemons do nothing to services if the ConfigMap is missing.
func poolsConfigMap(c *config.Cluster) (any, error) {
	var list []daemons.Pool
	for _, p := range c.Pools {
		list = append(list, p.Pool)
	}
	data, annotations, err := daemons.EncodePools(list)
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        daemons.PoolsName,
			Namespace:   metav1.NamespaceSystem,
			Annotations: annotations,
		}, Data: data}, err
}

const dnsName = "kube-dns"

func dnsService(c *config.Cluster) any {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      dnsName,
			Namespace: "kube-system",
			Labels:    map[string]string{"k8s-app": dnsName, "kubernetes.io/name": "CoreDNS"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: c.ServiceIP(10).String(),
			Ports: []corev1.ServicePort{
				{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(53)},
				{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(53)},
			},
		},
	}
}

const (
	ingressName       = "kube-ingress"
	ingressController = "clusterctl.local/ingress"
)

// ingressService returns a Service without a selector. Each proxy adds itself as an endpoint.
func ingressService(c *config.Cluster) any {
	cfg := daemons.DefaultIngress()
	c.Ingress.Settings.Over(&cfg)
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      ingressName,
			Namespace: "kube-system",
			Labels:    map[string]string{"k8s-app": ingressName},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt(cfg.HTTPPort)},
				{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt(cfg.HTTPSPort)},
			},
		},
	}
}

func ingressClass(c *config.Cluster) any {
	return &networkingv1.IngressClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Ingress.Class, Annotations: map[string]string{
			networkingv1.AnnotationIsDefaultIngressClass: strconv.FormatBool(c.Ingress.DefaultClass),
		}},
		Spec: networkingv1.IngressClassSpec{Controller: ingressController},
	}
}

// nodeLabels returns a Node with the declared labels, including those that a node may not set on itself.
func nodeLabels(m config.Machine) any {
	labels := maps.Clone(m.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if m.HasRole(config.RoleControlPlane) {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata":   map[string]any{"name": m.Name, "labels": labels},
	}
}
