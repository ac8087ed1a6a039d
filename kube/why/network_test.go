package why

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestBrokenServicesAreExplained(t *testing.T) {
	typo := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "webb"} }
	named := func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("http") }
	port := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
	}
	closed := &networkingv1.NetworkPolicy{ObjectMeta: newMeta("closed")}
	closed.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "kube-ingress"}}
	ingress := func(change ...func(*networkingv1.Ingress)) *networkingv1.Ingress {
		i := &networkingv1.Ingress{ObjectMeta: newMeta("shop")}
		i.Spec.IngressClassName = ptr.To("kube-ingress")
		i.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web",
			Port: networkingv1.ServiceBackendPort{Number: 80}}}
		for _, c := range change {
			c(i)
		}
		return i
	}
	for _, c := range []brokenCase{
		{name: "it selects nothing", object: "svc/web",
			objects: []runtime.Object{newService("web"), newPod("web", readyPod,
				typo)}, verdict: "Service shop/web has no endpoints because no pod has the labels app=web of its " +
				"selector.",
			remedy: "spec.selector of Service shop/web", step: "Pod shop/web: Its label is app=webb instead of " +
				"app=web."},
		{name: "no pod is ready", object: "svc/web",
			objects: []runtime.Object{newService("web"), newPod("web", waitingFor(
				"InvalidImageName", "")), newNode("a")},
			verdict: `Service shop/web has no endpoints because "registry.example/web:v1" is not a valid name of an image.`,
			remedy:  "image of Pod shop/web", step: "It selects 1 pod, and none is ready."},
		{name: "a port", object: "svc/web", objects: []runtime.Object{newService("web", named), newPod("web", readyPod,
			port)}, verdict: "Service shop/web does not reach its pods because the target port http of its port 80 " +
			"is not a " +
			"port of its pods, which have web=8080.", remedy: "spec.ports[80].targetPort of Service shop/web"},
		{name: "a policy", object: "svc/web", objects: []runtime.Object{newService("web"), newPod("web", readyPod),
			newSlice("web", "10.0.0.7"), closed},
			verdict: "Service shop/web is not reached because network policy shop/closed isolates its pods, and its " +
				"rules let " +
				"no pod of namespace shop in on port 80.", remedy: "spec.ingress of NetworkPolicy shop/closed"},
		{name: "no selector", object: "svc/web", objects: []runtime.Object{newService("web", func(s *corev1.Service) {
			s.Spec.Selector = nil
		})}, verdict: "Service shop/web has no endpoints because it has no selector, and no endpoint slice names it.",
			remedy: "kubernetes.io/service-name=web"},
		{name: "no external address", object: "svc/web", objects: []runtime.Object{newService("web",
			func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }), newPod("web", readyPod),
			newSlice("web", "10.0.0.7"), event("Service", "web", "SyncLoadBalancerFailed",
				"Error syncing load balancer: no pool has a free address")},
			verdict: "Service shop/web has no external address because Error syncing load balancer: no pool has a " +
				"free " +
				"address.", remedy: "address pool"},
		{name: "a class", object: "ingress/shop", objects: []runtime.Object{ingress(func(i *networkingv1.Ingress) {
			i.Spec.IngressClassName = ptr.To("nginx")
		}), class}, verdict: "Ingress shop/shop is not served because its ingress class nginx does not exist.",
			remedy: "Name an existing class: kube-ingress."},
		{name: "a service", object: "ingress/shop", objects: []runtime.Object{ingress(), class},
			verdict: "Ingress shop/shop does not serve all its paths because its service shop/web does not exist.",
			remedy:  "spec.rules of Ingress shop/shop"},
		{name: "a service's port", object: "ingress/shop",
			objects: []runtime.Object{ingress(func(i *networkingv1.Ingress) {
				i.Spec.DefaultBackend.Service.Port.Number = 8080
			}), class, newService("web")},
			verdict: "Ingress shop/shop does not serve all its paths because service web has no port 8080; it has 80.",
			remedy:  "backend.service.port of Ingress shop/shop"},
		{name: "a service without endpoints", object: "ingress/shop", objects: []runtime.Object{ingress(), class,
			newService("web")},
			verdict: "Ingress shop/shop does not serve all its paths because no pod has the labels app=web of its " +
				"selector.",
			remedy: "spec.selector of Service shop/web", step: "Its service web has no endpoints."},
		{name: "a certificate", object: "ingress/shop",
			objects: []runtime.Object{ingress(func(i *networkingv1.Ingress) {
				i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"shop.example"}, SecretName: "shop-tls"}}
			}), class, newService("web"), newPod("web", readyPod), newSlice("web", "10.0.0.7")},
			verdict: "Ingress shop/shop has no certificate because the secret shop-tls of its hosts shop.example " +
				"does not " +
				"exist.", remedy: "kubectl create secret tls -n shop shop-tls"},
	} {
		t.Run(c.name, c.run)
	}
}

func TestBrokenClaimsAreExplained(t *testing.T) {
	late := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "disks.example",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	static := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "static"},
		Provisioner: "kubernetes.io/no-provisioner"}
	small := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk-1"}}
	small.Spec.StorageClassName = "static"
	small.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	lost := newClaim("data", "static")
	lost.Status.Phase, lost.Spec.VolumeName = corev1.ClaimLost, "disk-9"
	released := small.DeepCopy()
	released.Status.Phase = corev1.VolumeReleased
	released.Spec.ClaimRef = &corev1.ObjectReference{Namespace: testNamespace, Name: "data"}
	for _, c := range []brokenCase{
		{name: "no class", object: "pvc/data", objects: []runtime.Object{newClaim("data", ""), late},
			verdict: "PersistentVolumeClaim shop/data is not bound because it names no storage class and the cluster " +
				"has no " +
				"default one.", remedy: "with the name of a class: late."},
		{name: "an unknown class", object: "pvc/data", objects: []runtime.Object{newClaim("data", "fast"), late},
			verdict: "PersistentVolumeClaim shop/data is not bound because its storage class fast does not exist.",
			remedy:  "spec.storageClassName of PersistentVolumeClaim shop/data"},
		{name: "no pod", object: "pvc/data", objects: []runtime.Object{newClaim("data", "late"), late},
			verdict: "PersistentVolumeClaim shop/data is not bound because its storage class late waits for a pod " +
				"that uses " +
				"the claim, and no pod does.", remedy: "Create a pod that uses the claim."},
		{name: "no volume fits", object: "pvc/data",
			objects: []runtime.Object{newClaim("data", "static"), static, small},
			verdict: "PersistentVolumeClaim shop/data is not bound because no volume fits: disk-1 has 1Gi of 5Gi.",
			remedy:  "Create a PersistentVolume that fits"},
		{name: "lost", object: "pvc/data", objects: []runtime.Object{lost},
			verdict: "PersistentVolumeClaim shop/data is lost because its volume disk-9 no longer exists.",
			remedy:  "kubectl delete -n shop persistentvolumeclaim/data"},
		{name: "in use", object: "pvc/data", objects: []runtime.Object{deleted(newClaim("data", "late"),
			"kubernetes.io/pvc-protection"), newPod("web", readyPod, withClaim("data"))},
			verdict: "PersistentVolumeClaim shop/data is still terminating because web uses it.",
			remedy:  "kubectl delete pod -n shop web"},
		{name: "released", object: "pv/disk-1", objects: []runtime.Object{released},
			verdict: "PersistentVolume disk-1 cannot be bound because its former claim shop/data was deleted and its " +
				"data is " +
				"kept.", remedy: `{"spec":{"claimRef":null}}`},
	} {
		t.Run(c.name, c.run)
	}
}

// newRequest returns a pending certificate request of a node's kubelet.
func newRequest(t *testing.T, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	q := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"}}
	q.Spec.Username, q.Spec.SignerName = "system:bootstrap:abcdef", certificatesv1.KubeAPIServerClientKubeletSignerName
	q.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return q
}

func TestBrokenNodesAndNamespacesAreExplained(t *testing.T) {
	ending := func(conditions ...corev1.NamespaceCondition) *corev1.Namespace {
		n := deleted(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}})
		n.Status.Phase, n.Status.Conditions = corev1.NamespaceTerminating, conditions
		return n
	}
	service := untyped("apiregistration.k8s.io/v1", "APIService", "", "v1.books.example", map[string]any{
		"spec": map[string]any{"service": map[string]any{"namespace": "books", "name": "api"}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Available", "status": "False",
			"message": "service not found"}}}})
	held := untyped("v1", "ConfigMap", testNamespace, "settings", map[string]any{})
	held.SetFinalizers([]string{"example.com/held"})
	held.SetDeletionTimestamp(ptr.To(metav1.Now()))
	held.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "shop-operator", FieldsV1: metav1.NewFieldsV1(
		`{"f:metadata":{"f:finalizers":{".":{}}}}`)}})
	for _, c := range []brokenCase{
		{name: "the disk is full", object: "node/a",
			objects: []runtime.Object{newNode("a", nodeIs(corev1.NodeDiskPressure,
				"True", "kubelet has disk pressure"))},
			verdict: "Node a is under pressure because its disk is nearly full, so the kubelet deletes images and " +
				"evicts " +
				"pods: kubelet has disk pressure.", remedy: "clusterctl ssh a df -h"},
		{name: "the network is not ready", object: "node/a",
			objects: []runtime.Object{newNode("a", nodeIs(corev1.NodeReady,
				"False", "container runtime network not ready: cni plugin not initialized"))},
			verdict: "Node a is not ready because its pod network is not ready: container runtime network not ready: " +
				"cni " +
				"plugin not initialized.", remedy: "journalctl -u kube-network"},
		{name: "the kubelet is silent", object: "node/a",
			objects: []runtime.Object{newNode("a", nodeIs(corev1.NodeReady,
				"Unknown", "Kubelet stopped posting node status."))},
			verdict: "Node a is not ready because its kubelet has stopped reporting: the machine is off, " +
				"unreachable, or its " +
				"kubelet has ended.", remedy: "clusterctl ssh a systemctl status kubelet"},
		{name: "cordoned", object: "node/a", objects: []runtime.Object{newNode("a", func(n *corev1.Node) {
			n.Spec.Unschedulable = true
		})}, verdict: "Node a takes no new pods because it is cordoned.", remedy: "kubectl uncordon a"},
		{name: "no certificate", object: "node/a", objects: []runtime.Object{newRequest(t, "a")},
			verdict: "Node a is not in the cluster because the certificate request csr-1 of system:bootstrap:abcdef " +
				"waits for " +
				"approval.", remedy: "kubectl certificate approve csr-1"},
		{name: "a request", object: "csr/csr-1", objects: []runtime.Object{newRequest(t, "a")},
			verdict: "CertificateSigningRequest csr-1 has no certificate because the certificate request csr-1 of " +
				"system:bootstrap:abcdef waits for approval.", remedy: "kubectl certificate approve csr-1"},
		{name: "an aggregated API is down", object: "ns/shop",
			objects: []runtime.Object{ending(corev1.NamespaceCondition{
				Type: corev1.NamespaceDeletionDiscoveryFailure, Status: "True", Message: "Discovery failed for " +
					"books.example/v1"}),
				service},
			verdict: "Namespace shop is still terminating because the API service v1.books.example is not available: " +
				"service " +
				"not found.", remedy: "clusterctl why -n books service/api"},
		{name: "a finalizer in it", object: "ns/shop", objects: []runtime.Object{ending(corev1.NamespaceCondition{
			Type: corev1.NamespaceFinalizersRemaining, Status: "True", Message: "Some content in the namespace has " +
				"finalizers remaining: example.com/held in 1 resource instances"}, corev1.NamespaceCondition{
			Type: corev1.NamespaceContentRemaining, Status: "True", Message: "Some resources are remaining: " +
				"configmaps. has " +
				"1 resource instances"}), held},
			verdict: "Namespace shop is still terminating because the finalizer example.com/held of ConfigMap " +
				"shop/settings " +
				"was not removed: its controller has not removed it; shop-operator set it.",
			remedy: "kubectl patch -n shop configmap/settings"},
	} {
		t.Run(c.name, c.run)
	}
}
