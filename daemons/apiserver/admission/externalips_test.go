package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
	"clusterctl/daemons/config"
)

// TestExternalIPsCannotBeClusterAddresses checks which external IPs a Service can get.
// Proves S12, S28.
func TestExternalIPsCannotBeClusterAddresses(t *testing.T) {
	plugin, _ := newTestExternalIPs(t)
	for ip, want := range map[string]string{
		"192.0.2.1": "", "198.51.100.7": "", "2001:db8::3": "", "203.0.113.110": "", "10.244.9.1": "",
		"10.0.0.1": "an address of an API server", "10.0.0.2": "an address of node a",
		"2001:db8::2":   "an address of node a",
		"2001:db8:0::2": "an address of node a", "10.0.0.3": "an address of machine c",
		"203.0.113.3":   "an address of machine c",
		"203.0.113.105": "in the load balancer pool outside", "10.96.0.1": "in a network of the cluster",
		"10.97.0.1":  "in the service range more",
		"10.250.1.7": "in the pod network of node a", "10.244.3.7": "in a network of the cluster",
		"10.0.0.100": "in a network of the cluster", "10.0.0.9": "in a network of the cluster",
	} {
		err := validateService(t, plugin, nil, serviceWithIPs("192.0.2.9", ip))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "spec.externalIPs[1]: ") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", ip, err, want)
		}
		if err := validateService(t, plugin, serviceWithIPs(ip), serviceWithIPs("192.0.2.1", ip)); err != nil {
			t.Errorf("%s, unchanged by an update: %v", ip, err)
		}
		if err := validateService(t, plugin, serviceWithIPs("192.0.2.1"),
			serviceWithIPs("192.0.2.1", ip)); (err == nil) != (want == "") {
			t.Errorf("%s, added by an update: %v, want %q", ip, err, want)
		}
	}
}

// Proves S12, S28.
func TestDenyServiceExternalIPsAllowsNoNewAddress(t *testing.T) {
	for name, c := range map[string]struct {
		old, now *corev1.Service
		ok       bool
	}{
		"none":        {nil, serviceWithIPs(), true},
		"one":         {nil, serviceWithIPs("192.0.2.1"), false},
		"the same":    {serviceWithIPs("192.0.2.1"), serviceWithIPs("192.0.2.1"), true},
		"fewer":       {serviceWithIPs("192.0.2.1", "192.0.2.2"), serviceWithIPs("192.0.2.2"), true},
		"another one": {serviceWithIPs("192.0.2.1"), serviceWithIPs("192.0.2.2"), false},
	} {
		if err := validateService(t, denyExternalIPs{}, c.old, c.now); (err == nil) != c.ok {
			t.Errorf("with DenyServiceExternalIPs, %s: %v", name, err)
		}
	}
}

// Proves S12, S28.
func TestCombinationsOfExternalIPsAndPortsAreLimited(t *testing.T) {
	plugin, o := newTestExternalIPs(t)
	many := serviceWithIPs()
	for i := range 200 {
		many.Spec.ExternalIPs = append(many.Spec.ExternalIPs, fmt.Sprintf("192.0.2.%d", i+1))
		many.Spec.Ports = append(many.Spec.Ports, corev1.ServicePort{Port: int32(i + 1)})
	}
	if err := validateService(t, plugin, nil, many); err == nil || !strings.Contains(err.Error(), "combinations") {
		t.Errorf("200 addresses with 201 ports: %v", err)
	}
	if err := validateService(t, plugin, many, many); err != nil {
		t.Errorf("200 addresses with 201 ports, unchanged: %v", err)
	}
	headless := serviceWithIPs()
	headless.Spec.ClusterIP, headless.Spec.Ports = corev1.ClusterIPNone, nil
	for i := range maxCombinations {
		headless.Spec.ExternalIPs = append(headless.Spec.ExternalIPs, fmt.Sprintf("198.51.%d.%d", 100+i/250, i%250))
	}
	counted := &countedObjects{Objects: o}
	plugin.objects = counted
	if err := validateService(t, plugin, nil, headless); err != nil || counted.calls > 10 {
		t.Errorf("%d addresses without ports: %v; stored objects were read %d times", maxCombinations, err,
			counted.calls)
	}
	headless.Spec.ExternalIPs = append(headless.Spec.ExternalIPs, "198.51.99.1")
	if err := validateService(t, plugin, nil, headless); err == nil || !strings.Contains(err.Error(), "combinations") {
		t.Errorf("%d addresses without ports: %v", len(headless.Spec.ExternalIPs), err)
	}
}

// newTestExternalIPs returns the plugin, and the objects of a cluster with a node, a machine and a pool.
func newTestExternalIPs(t *testing.T) (*externalIPs, *apifake.Objects) {
	t.Helper()
	system := func(name string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: data}
	}
	o := apifake.New(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: corev1.NodeSpec{PodCIDRs: []string{"10.250.1.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
				{Type: corev1.NodeExternalIP, Address: "2001:db8::2"}, {Type: corev1.NodeHostName, Address: "a"}}}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/16"}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes",
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.7"}}}},
		system("machine-inventory", map[string]string{
			"c": `{"roles":["control-plane"],"addresses":["10.0.0.3"],"externalAddresses":["203.0.113.3"]}`}),
		system("load-balancer-pools", map[string]string{"outside": `{"addresses":["203.0.113.100-203.0.113.110"]}`}),
	)
	cfg := config.DefaultAPIServer()
	cfg.ServiceClusterIPRange, cfg.AdvertiseAddress = []string{"10.96.0.0/16"}, "10.0.0.9"
	cfg.RestrictedExternalIPs, cfg.AllowedExternalIPs = []string{"10.244.0.0/16", "10.0.0.100"},
		[]string{"203.0.113.110", "10.244.9.0/24"}
	plugin, err := newExternalIPs(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return plugin, o
}

func serviceWithIPs(ips ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 22}}, ExternalIPs: ips}}
}

// validateService validates a creation, or an update if there is an old object.
func validateService(t *testing.T, v api.Validator, old, now *corev1.Service) error {
	a := &api.Admission{Operation: "CREATE", Resource: corev1.SchemeGroupVersion.WithResource("services"),
		Namespace: "shop", Name: "s", Object: now}
	if old != nil {
		a.Operation, a.Old = "UPDATE", runtime.Object(old)
	}
	return v.Validate(t.Context(), a)
}

// countedObjects counts the reads of objects.
type countedObjects struct {
	api.Objects
	calls int
}

func (c *countedObjects) Get(resource schema.GroupResource, namespace, name string) (runtime.Object, bool) {
	c.calls++
	return c.Objects.Get(resource, namespace, name)
}

func (c *countedObjects) List(resource schema.GroupResource, namespace string) []runtime.Object {
	c.calls++
	return c.Objects.List(resource, namespace)
}
