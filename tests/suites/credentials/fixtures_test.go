package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

const clientAuth = x509.ExtKeyUsageClientAuth

// fixtureObjects returns the Node "worker" and the objects that belong to it, which are named "web" in the namespace
// "shop".
func fixtureObjects(*testing.T) []runtime.Object {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	return []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "worker", ServiceAccountName: "web",
			Volumes: []corev1.Volume{
				{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "web"}}},
				{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}}},
				{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
					ClaimName: "web"}}},
			}}},
		&corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeTLS},
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "clusterctl"},
			Spec: networkingv1.IngressClassSpec{Controller: "clusterctl.local/ingress"}},
		&networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("clusterctl"),
			TLS: []networkingv1.IngressTLS{{SecretName: "web"}}}},
	}
}

// createFixtures creates the objects of two machines, "worker" and "other". Those of "worker" are in the namespace
// "shop", those of "other" in the namespace "vault".
func createFixtures(t *testing.T, admin *client) {
	t.Helper()
	for _, namespace := range []string{"shop", "vault"} {
		admin.create("/api/v1/namespaces", decodeObject(t, fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace)))
		admin.create("/api/v1/namespaces/"+namespace+"/serviceaccounts", decodeObject(t, `{"metadata":{"name":"default"}}`))
	}
	admin.create("/apis/networking.k8s.io/v1/ingressclasses",
		decodeObject(t, `{"metadata":{"name":"clusterctl"},"spec":{"controller":"clusterctl.local/ingress"}}`))
	admin.create("/apis/networking.k8s.io/v1/ingressclasses",
		decodeObject(t, `{"metadata":{"name":"others"},"spec":{"controller":"example.com/ingress"}}`))
	for machine, namespace := range map[string]string{"worker": "shop", "other": "vault"} {
		class := map[string]string{"worker": "clusterctl", "other": "others"}[machine]
		admin.create("/api/v1/nodes", decodeObject(t, fmt.Sprintf(`{"metadata":{"name":%q}}`, machine)))
		admin.create("/api/v1/namespaces/"+namespace+"/pods",
			decodeObject(t, fmt.Sprintf(`{"metadata":{"name":"web"},"spec":{"nodeName":%q,"containers":[{"name":"c",`+
				`"image":"i"}]}}`, machine)))
		admin.create("/apis/networking.k8s.io/v1/namespaces/"+namespace+"/ingresses", decodeObject(t,
			fmt.Sprintf(`{"metadata":{"name":"web"},"spec":{"ingressClassName":%q,`+
				`"defaultBackend":{"service":{"name":"web","port":{"number":80}}}}}`, class)))
		admin.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
			decodeObject(t, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":%q}}`, machine, machine)))
		for _, daemon := range []string{"kube-dns", "kube-ingress", "metrics-server"} {
			admin.create("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
				decodeObject(t, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":%q}}`, daemon+"-"+machine,
					machine)))
			admin.create("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
				decodeObject(t, newSlice(daemon, daemon+"-"+machine, machine)))
		}
	}
	admin.create("/api/v1/namespaces/vault/events",
		decodeObject(t, newEvent("theirs", "vault", "deployment-controller", "")))
	for _, lease := range []string{"kube-controller-manager", "kube-scheduler", "kube-address", "kube-ingress",
		"load-balancer-0"} {
		admin.create("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
			decodeObject(t, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":"x"}}`, lease)))
	}
}

var sliceManagers = map[string]string{"kube-dns": "dns.clusterctl", "kube-ingress": "ingress.clusterctl",
	"metrics-server": "metrics-server.clusterctl"}

func newSlice(daemon, name, machine string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,
		"labels":{"kubernetes.io/service-name":%q,"endpointslice.kubernetes.io/managed-by":%q}},
		"addressType":"IPv4","ports":[],
		"endpoints":[{"addresses":["10.0.0.2"],"nodeName":%q}]}`, name, daemon, sliceManagers[daemon], machine)
}

// machineChanges returns the writes to objects of a machine. For the machine "other" it also returns writes to objects
// that belong to no worker.
func machineChanges(machine string) []writeRequest {
	namespace := map[string]string{"worker": "shop", "other": "vault"}[machine]
	const leases, slices = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		"/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
	const note = `{"metadata":{"annotations":{"note":"x"}}}`
	list := []writeRequest{
		{"node", "PATCH", "/api/v1/nodes/" + machine, note},
		{"status of the node", "PATCH", "/api/v1/nodes/" + machine + "/status", note},
		{"node deleted", "DELETE", "/api/v1/nodes/" + machine, ""},
		{"lease of the node", "PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + machine,
			note},
		{"status of pods", "PATCH", "/api/v1/namespaces/" + namespace + "/pods/web/status",
			`{"status":{"message":"x"}}`},
		{"pods deleted", "DELETE", "/api/v1/namespaces/" + namespace + "/pods/web", ""},
		{"pods", "PATCH", "/api/v1/namespaces/" + namespace + "/pods/web", note},
		{"status of Ingresses", "PUT", "/apis/networking.k8s.io/v1/namespaces/" + namespace + "/ingresses/web/status",
			fmt.Sprintf(
				`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"web","namespace":%q},`+
					`"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`, namespace)},
		{"certificate of the node", "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests",
			newNodeCSR(machine)},
		{"CSINode", "POST", "/apis/storage.k8s.io/v1/csinodes",
			fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"drivers":[]}}`, machine)},
		{"secrets", "POST", "/api/v1/namespaces/" + namespace + "/secrets", `{"metadata":{"name":"new"}}`},
		{"tokenreviews", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"x"}}`},
		{"subjectaccessreviews", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			`{"spec":{"user":"jane","resourceAttributes":{"verb":"get","resource":"pods"}}}`},
	}
	// The source of an event names the component and the machine.
	for _, component := range []string{"kubelet", "kube-proxy", "kube-ingress"} {
		list = append(list, writeRequest{"record an event", "POST", "/api/v1/namespaces/" + namespace + "/events",
			newEvent("e", namespace, component, "worker")})
	}
	for _, daemon := range []string{"kube-dns", "kube-ingress", "metrics-server"} {
		name := daemon + "-" + machine
		list = append(list,
			writeRequest{"lease of " + daemon, "PUT", leases + "/" + name,
				fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":%q}}`, name, machine)},
			writeRequest{"lease of " + daemon, "POST", leases,
				fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":%q}}`, name, machine)},
			writeRequest{"endpoints of " + daemon, "PUT", slices + "/" + name, newSlice(daemon, name, machine)},
			writeRequest{"endpoints of " + daemon, "POST", slices, newSlice(daemon, name, machine)},
			writeRequest{"endpoints of " + daemon, "DELETE", slices + "/" + name, ""},
		)
	}
	// A machine may acquire these leases for itself, because it takes part in the election.
	for _, name := range []string{"kube-ingress", "load-balancer-0"} {
		list = append(list, writeRequest{"election " + name, "PUT", leases + "/" + name,
			fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":%q,"leaseDurationSeconds":%d}}`,
				name, machine, map[string]int{"worker": 15, "other": 3600}[machine])})
	}
	if machine == "worker" {
		return list
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kube-address"} {
		list = append(list, writeRequest{"election " + name, "PUT", leases + "/" + name,
			fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":"worker","leaseDurationSeconds":3600}}`,
				name)})
	}
	return append(list,
		writeRequest{"record an event of another component", "POST", "/api/v1/namespaces/vault/events",
			newEvent("e", "vault", "deployment-controller", "other")},
		writeRequest{"change an event of another component", "PATCH", "/api/v1/namespaces/vault/events/theirs",
			`{"message":"x"}`},
		writeRequest{"a new lease of kube-system", "POST", leases,
			`{"metadata":{"name":"new"},"spec":{"holderIdentity":"worker"}}`},
		writeRequest{"a new slice of kube-dns", "POST", slices, newSlice("kube-dns", "new", "worker")},
		writeRequest{"a slice of a tenant", "POST", "/apis/discovery.k8s.io/v1/namespaces/vault/endpointslices",
			newSlice("kube-dns", "kube-dns-worker", "worker")},
		writeRequest{"roles", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"new"}}`},
		writeRequest{"services", "POST", "/api/v1/namespaces/vault/services",
			`{"metadata":{"name":"new"},"spec":{"ports":[{"port":80}]}}`},
		writeRequest{"deployments", "DELETE", "/apis/apps/v1/namespaces/vault/deployments", ""},
	)
}

// newEvent returns an event whose source is a component on a machine.
func newEvent(name, namespace, component, host string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"involvedObject":{"kind":"Ingress","namespace":%q,"name":"web"},`+
		`"source":{"component":%q,"host":%q},"reason":"R","message":"m","type":"Normal"}`,
		name, namespace, component, host)
}

// newNodeCSR returns a CertificateSigningRequest for the client certificate of a node.
func newNodeCSR(node string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node,
			Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		panic(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return fmt.Sprintf(`{"metadata":{"name":"csr-%s"},`+
		`"spec":{"signerName":"kubernetes.io/kube-apiserver-client-kubelet","usages":["digital signature","client `+
		`auth"],"request":%q}}`,
		node, base64.StdEncoding.EncodeToString(text))
}
