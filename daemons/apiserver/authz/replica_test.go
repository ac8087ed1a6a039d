package authz

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
)

func replicaUser(daemon, machine string) api.User {
	return api.User{Name: "system:" + daemon + ":" + machine,
		Groups: []string{"system:" + daemon, api.GroupAuthenticated}}
}

// TestDaemonsChangeOnlyTheirMachinesObjects checks the requests that daemons on several machines are allowed.
// Proves S12, S31.
func TestDaemonsChangeOnlyTheirMachinesObjects(t *testing.T) {
	authorizer, err := New(nil, testObjects())
	if err != nil {
		t.Fatal(err)
	}
	dns, ingress, network, metrics := replicaUser("kube-dns", "a"), replicaUser("kube-ingress", "a"),
		replicaUser("kube-network", "a"), replicaUser("metrics-server", "a")
	former, stranger := api.User{Name: "system:kube-dns"},
		api.User{Name: "system:kube-dns:a", Groups: []string{api.GroupAuthenticated}}
	const leases, endpoints = " coordination.k8s.io:leases ", " discovery.k8s.io:endpointslices "
	for _, c := range []struct {
		user api.User
		ask  string
		want bool
	}{
		{dns, "get" + leases + "kube-system/kube-dns-a", true},
		{dns, "update" + leases + "kube-system/kube-dns-a", true},
		{dns, "delete" + leases + "kube-system/kube-dns-a", true},
		{dns, "create" + leases + "kube-system/", true}, // admission checks the name
		{dns, "patch" + leases + "kube-system/kube-dns-a", false},
		{dns, "list" + leases + "kube-system/", false},
		{dns, "update" + leases + "kube-system/kube-dns-b", false},
		{dns, "update" + leases + "kube-system/kube-controller-manager", false},
		{dns, "update" + leases + "kube-system/load-balancer-0", false},
		{dns, "update" + leases + "kube-node-lease/a", false},
		{dns, "update" + endpoints + "kube-system/kube-dns-a", true},
		{dns, "delete" + endpoints + "kube-system/kube-dns.ipv6-a", true},
		{dns, "update" + endpoints + "kube-system/kube-dns-b", false},
		{dns, "update" + endpoints + "kube-system/kube-ingress-a", false},
		{dns, "update" + endpoints + "default/kube-dns-a", false},
		{dns, "create" + endpoints + "default/", false},
		{dns, "deletecollection" + endpoints + "kube-system/", false},
		{dns, "watch" + endpoints, true},
		{dns, "list :services", true},
		{dns, "get :secrets shop/tls", false},
		{dns, "create :events shop/", false},
		{ingress, "update" + leases + "kube-system/kube-ingress", true},
		{ingress, "update" + leases + "kube-system/kube-ingress-a", true},
		{ingress, "update" + leases + "kube-system/kube-ingress-b", false},
		{ingress, "list :secrets", false},
		{ingress, "list :secrets shop/", false},
		{ingress, "list networking.k8s.io:ingresses", true},
		{network, "update" + leases + "kube-system/load-balancer-0", true},
		{network, "update" + leases + "kube-system/load-balancer-local-3", true},
		{network, "update" + leases + "kube-system/kube-scheduler", false},
		{network, "update" + leases + "kube-system/kube-network-a", false},
		{network, "create" + endpoints + "kube-system/", false},
		{network, "get :configmaps kube-system/machine-inventory", true},
		{network, "get :configmaps kube-system/other", false},
		{metrics, "update" + leases + "kube-system/metrics-server-a", true},
		{metrics, "update" + leases + "kube-system/metrics-server-b", false},
		{metrics, "get" + endpoints + "kube-system/metrics-server-a", true},
		{metrics, "get" + endpoints + "kube-system/metrics-server-b", false},
		{metrics, "create" + endpoints + "kube-system/", true},
		{metrics, "list" + endpoints + "kube-system/", false},
		{metrics, "get :nodes/metrics a", true},
		{former, "update" + leases + "kube-system/kube-dns-a", false},
		{stranger, "update" + leases + "kube-system/kube-dns-a", false},
		{stranger, "list :services", false},
	} {
		d, reason, err := authorizer.Authorize(t.Context(), c.user, parseRequest(c.ask))
		if err != nil || (d == api.Allow) != c.want {
			t.Errorf("%s: %s: %v (%s, %v), want %v", c.user.Name, c.ask, d == api.Allow, reason, err, c.want)
		}
	}
}

func customObject(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
		"spec": spec}}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// TestIngressProxiesReadReferencedCertificates checks which Secrets a proxy may read while Ingresses, Gateways and
// ReferenceGrants change.
// Proves S12, S32.
func TestIngressProxiesReadReferencedCertificates(t *testing.T) {
	o := testObjects()
	addCertificateReferences(o)
	authorizer, err := New(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	proxy := replicaUser("kube-ingress", "a")
	check := func(when, text string, want bool) {
		t.Helper()
		d, reason, err := authorizer.Authorize(t.Context(), proxy, parseRequest(text))
		if err != nil || (d == api.Allow) != want {
			t.Errorf("%s: %s: %v (%s, %v), want %v", when, text, d == api.Allow, reason, err, want)
		}
	}
	for text, want := range map[string]bool{
		"get :secrets shop/web": true, "watch :secrets shop/web": true, "list :secrets shop/web": true,
		"get :secrets shop/missing": true,
		"update :secrets shop/web":  false, "get :secrets shop/password": false, "get :secrets shop/unused": false,
		"get :secrets kube-system/web": false,
		"get :secrets shop/foreign":    false, "get :secrets shop/bare": false, "get :secrets shop/gate": true,
		"get :secrets vault/gate": false, "get :secrets shop/cm": false,
		"update networking.k8s.io:ingresses/status shop/web":             true,
		"update networking.k8s.io:ingresses/status shop/foreign":         false,
		"update networking.k8s.io:ingresses shop/web":                    false,
		"update gateway.networking.k8s.io:gateways/status shop/g":        true,
		"update gateway.networking.k8s.io:gateways/status shop/theirs":   false,
		"update gateway.networking.k8s.io:gatewayclasses/status ours":    true,
		"update gateway.networking.k8s.io:gatewayclasses/status theirs":  false,
		"update gateway.networking.k8s.io:httproutes/status shop/r":      true,
		"update gateway.networking.k8s.io:httproutes/status web/r":       false,
		"update gateway.networking.k8s.io:httproutes/status web/across":  true,
		"update gateway.networking.k8s.io:httproutes/status shop/theirs": false,
		"update gateway.networking.k8s.io:gateways shop/g":               false,
	} {
		check("at first", text, want)
	}
	o.Put(ingressClass("ours", "clusterctl.local/ingress", true))
	check("with a default class", "get :secrets shop/bare", true)
	grant := customObject("ReferenceGrant", "vault", "r", map[string]any{
		"from": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "shop"}},
		"to":   []any{map[string]any{"group": "", "kind": "Secret", "name": "other"}}})
	o.Put(grant)
	check("with a grant for another secret", "get :secrets vault/gate", false)
	o.Put(customObject("ReferenceGrant", "vault", "r",
		map[string]any{"from": grant.Object["spec"].(map[string]any)["from"],
			"to": []any{map[string]any{"group": "", "kind": "Secret"}}}))
	check("with a grant for all secrets", "get :secrets vault/gate", true)
	theirs := customObject("Gateway", "shop", "g", gatewayWithListener(map[string]any{"name": "gate"}))
	theirs.Object["spec"].(map[string]any)["gatewayClassName"] = "theirs"
	o.Put(theirs)
	check("when the Gateway is another controller's", "get :secrets shop/gate", false)
	o.Remove(ingressWithSecret("web", nil, ""))
	check("when the Ingress is gone", "get :secrets shop/web", false)
}

// addCertificateReferences adds Ingresses and Gateways of several controllers, with the Secrets that they name.
func addCertificateReferences(o *apifake.Objects) {
	for _, obj := range []runtime.Object{
		secretOfType("shop", "web", corev1.SecretTypeTLS), secretOfType("shop", "password", corev1.SecretTypeOpaque),
		secretOfType("shop", "unused", corev1.SecretTypeTLS),
		secretOfType("shop", "foreign", corev1.SecretTypeTLS), secretOfType("shop", "bare", corev1.SecretTypeTLS),
		secretOfType("shop", "gate", corev1.SecretTypeTLS), secretOfType("vault", "gate", corev1.SecretTypeTLS),
		ingressClass("ours", "clusterctl.local/ingress", false), ingressClass("nginx", "k8s.io/ingress-nginx", true),
		ingressWithSecret("web", ptr.To("ours"), "web"), ingressWithSecret("password", ptr.To("ours"), "password"),
		ingressWithSecret("missing", ptr.To("ours"), "missing"),
		ingressWithSecret("foreign", ptr.To("nginx"), "foreign"), ingressWithSecret("bare", nil, "bare"),
		customObject("GatewayClass", "", "ours", map[string]any{"controllerName": "clusterctl.local/gateway"}),
		customObject("GatewayClass", "", "theirs", map[string]any{"controllerName": "example.com/gateway"}),
		customObject("Gateway", "shop", "theirs", map[string]any{"gatewayClassName": "theirs"}),
		customObject("HTTPRoute", "shop", "r", map[string]any{"parentRefs": []any{map[string]any{"name": "g"}}}),
		customObject("HTTPRoute", "web", "r", map[string]any{"parentRefs": []any{map[string]any{"name": "g"}}}),
		customObject("HTTPRoute", "web", "across", map[string]any{
			"parentRefs": []any{map[string]any{"name": "g", "namespace": "shop"}}}),
		customObject("HTTPRoute", "shop", "theirs",
			map[string]any{"parentRefs": []any{map[string]any{"name": "theirs"}}}),
		customObject("Gateway", "shop", "g", gatewayWithListener(map[string]any{"name": "gate"},
			map[string]any{"name": "gate", "namespace": "vault"}, map[string]any{"name": "cm", "kind": "ConfigMap"})),
	} {
		o.Put(obj)
	}
}

func secretOfType(namespace, name string, kind corev1.SecretType) runtime.Object {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind}
}

func ingressClass(name, controller string, isDefault bool) runtime.Object {
	c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.IngressClassSpec{Controller: controller}}
	if isDefault {
		c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	return c
}

func ingressWithSecret(name string, class *string, secret string) runtime.Object {
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: networkingv1.IngressSpec{IngressClassName: class,
			TLS: []networkingv1.IngressTLS{{SecretName: secret}}}}
}

func gatewayWithListener(refs ...any) map[string]any {
	return map[string]any{"gatewayClassName": "ours",
		"listeners": []any{map[string]any{"tls": map[string]any{"certificateRefs": refs}}}}
}
