package ingress

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/ingress/route"
	"clusterctl/kube/kubernetes/fake"
)

// A Gateway has addresses of all families of the cluster's services, even if its service was created by a release that
// requested one family.
func TestAGatewayHasAnAddressOfEachFamily(t *testing.T) {
	ports := []corev1.ServicePort{{Name: "port-80", Port: 80}}
	name := route.Key{Namespace: "shop", Name: "gateway-web"}
	former := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace,
			Name:      name.Name,
			Labels:    map[string]string{gatewayLabel: "web"},
		},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeLoadBalancer,
			Ports:          ports,
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
		},
	}
	for what, existing := range map[string]*corev1.Service{"a new one": nil, "one of a former release": former} {
		clients := fake.NewClientset()
		if existing != nil {
			clients = fake.NewClientset(existing)
		}
		a := gatewayService{name: name, ports: ports, current: existing, owner: metav1.OwnerReference{Name: "web"}}
		if err := (&statusWriter{clients: clients}).applyService(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		s, err := clients.CoreV1().Services(name.Namespace).Get(t.Context(), name.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if ptr.Deref(s.Spec.IPFamilyPolicy, "") != corev1.IPFamilyPolicyPreferDualStack {
			t.Errorf("%s: its service asks for %v", what, s.Spec.IPFamilyPolicy)
		}
		clients.ClearActions()
		a.current = s
		if err := (&statusWriter{clients: clients}).applyService(t.Context(), a); err != nil ||
			len(clients.Actions()) > 0 {
			t.Errorf("%s: written again though nothing differs: %v, %v", what, clients.Actions(), err)
		}
	}
}
