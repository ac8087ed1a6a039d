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
	"strings"
	"testing"

	"clusterctl/certs"
)

const (
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	slicesPath  = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
	applyPatch  = "application/apply-patch+yaml"
	mergePatch  = "application/merge-patch+json"
	jsonContent = "application/json"
)

// attackRequest is a request that the API server must reject.
type attackRequest struct {
	name         string
	user         certs.Request
	method, path string
	contentType  string // empty means JSON
	body         string
	code         int    // expected HTTP status
	text         string // expected part of the response body
}

// createTenants creates the objects that the attacks target, and grants rights in the namespace shop: eve can edit it,
// and peeper can get, but not create, exec, attach and port-forward.
func createTenants(t *testing.T, admin *client) {
	t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/"
	admin.create(rbac+"rolebindings", decodeObject(t,
		`{"metadata":{"name":"eve"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"eve"}],
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"}}`))
	admin.create(rbac+"roles", decodeObject(t, `{"metadata":{"name":"author"},`+
		`"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["create"]}]}`))
	admin.create(rbac+"rolebindings", decodeObject(t,
		`{"metadata":{"name":"author"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"eve"}],
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"author"}}`))
	admin.create(rbac+"roles", decodeObject(t, `{"metadata":{"name":"peeper"},"rules":[{"apiGroups":[""],"resources":["pods",`+
		`"pods/exec","pods/attach","pods/portforward"],"verbs":["get","list","watch"]}]}`))
	admin.create(rbac+"rolebindings", decodeObject(t, `{"metadata":{"name":"peeper"},
		"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"peeper"}],
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"peeper"}}`))
	admin.create("/api/v1/namespaces/kube-system/configmaps", decodeObject(t, `{"metadata":{"name":"machine-inventory"},
		"data":{"worker":"{\"roles\":[\"node\"],\"addresses\":[\"10.0.0.2\"]}",
		"other":"{\"roles\":[\"node\"],\"addresses\":[\"10.0.0.3\"]}"}}`))
	for _, name := range []string{"tls", "unused"} {
		admin.create("/api/v1/namespaces/shop/secrets",
			decodeObject(t, fmt.Sprintf(`{"metadata":{"name":%q},"type":"kubernetes.io/tls","data":{"tls.crt":"YQ==",`+
				`"tls.key":"YQ=="}}`, name)))
	}
	admin.create("/api/v1/namespaces/vault/secrets",
		decodeObject(t, `{"metadata":{"name":"tls"},"type":"kubernetes.io/tls","data":{"tls.crt":"YQ==","tls.key":"YQ=="}}`))
	for namespace, class := range map[string]string{"shop": "clusterctl", "vault": "others"} {
		admin.create("/apis/networking.k8s.io/v1/namespaces/"+namespace+"/ingresses",
			decodeObject(t, fmt.Sprintf(`{"metadata":{"name":"tls"},
			"spec":{"ingressClassName":%q,"tls":[{"secretName":"tls"}],
			"defaultBackend":{"service":{"name":"web","port":{"number":80}}}}}`, class)))
	}
	admin.create("/api/v1/namespaces/shop/services",
		decodeObject(t, `{"metadata":{"name":"web"},"spec":{"ports":[{"port":22}]}}`))
	admin.create("/api/v1/namespaces/shop/resourcequotas",
		decodeObject(t, `{"metadata":{"name":"ending"},"spec":{"hard":{"pods":"0"},"scopes":["Terminating"]}}`))
}

// newCSR returns a CertificateSigningRequest for a client certificate.
func newCSR(t *testing.T, name, signer, user, group string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user,
		Organization: []string{group}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"signerName":%q,"usages":["digital signature","client `+
		`auth"],"request":%q}}`, name, signer, base64.StdEncoding.EncodeToString(text))
}

func newLease(name, holder string, seconds int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"holderIdentity":%q,"leaseDurationSeconds":%d}}`, name,
		holder, seconds)
}

// listAttacks returns the requests of an attacker who has a worker's credentials or the edit right in a namespace. The
// numbers in comments group the attacks by topic.
//
//style:long one literal table of requests
func listAttacks(t *testing.T) []attackRequest {
	t.Helper()
	ingress, dns, network := certs.Replica("kube-ingress", "worker"), certs.Replica("kube-dns", "worker"),
		certs.Replica("kube-network", "worker")
	kubelet := certs.Request{CommonName: "system:node:worker", Organizations: []string{"system:nodes"}}
	eve, peeper := certs.Request{CommonName: "eve"}, certs.Request{CommonName: "peeper"}
	noGroup := certs.Request{CommonName: "system:kube-dns:worker"}
	const pods, services = "/api/v1/namespaces/shop/pods/web", "/api/v1/namespaces/shop/services"
	own := func(address, hint string) string {
		text := newSlice("kube-dns", "kube-dns-worker", "worker")
		text = strings.Replace(text, "10.0.0.2", address, 1)
		return strings.Replace(text, `"nodeName"`, fmt.Sprintf(`"hints":{"forNodes":[{"name":%q}]},"nodeName"`, hint),
			1)
	}
	var groups []string
	for i := range 300 {
		groups = append(groups, fmt.Sprintf(`"g%d"`, i))
	}
	product := strings.Join(groups, ",")
	return []attackRequest{
		// 1: credentials on a worker.
		{"read a Secret that nothing refers to", ingress, "GET", "/api/v1/namespaces/shop/secrets/unused", "", "", 403,
			"no Ingress and no Gateway refers"},
		{"read a Secret of another controller's Ingress", ingress, "GET", "/api/v1/namespaces/vault/secrets/tls", "",
			"", 403, "no Ingress and no Gateway refers"},
		{"list one Secret in all namespaces", ingress, "GET", "/api/v1/secrets?fieldSelector=metadata.name%3Dtls", "",
			"", 403, "individual"},
		{"watch all Secrets but one", ingress, "GET",
			"/api/v1/namespaces/shop/secrets?watch=true&fieldSelector=metadata.name!%3Dtls", "", "", 403, "individual"},
		{"list Secrets by their type", ingress, "GET",
			"/api/v1/namespaces/shop/secrets?fieldSelector=type%3Dkubernetes.io%2Ftls", "", "", 403, "individual"},
		{"change the certificate that it serves", ingress, "PATCH", "/api/v1/namespaces/shop/secrets/tls", mergePatch,
			`{"data":{"tls.key":"Yg=="}}`, 403, "can only read"},
		{"delete Secrets as a collection", ingress, "DELETE",
			"/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Dtls", "", "", 403, "can only read"},
		{"have an Ingress refer to a Secret", ingress, "PATCH",
			"/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web", mergePatch,
			`{"spec":{"tls":[{"secretName":"unused"}]}}`, 403, "forbidden"},
		{"take over an ingress class", ingress, "PATCH", "/apis/networking.k8s.io/v1/ingressclasses/others", mergePatch,
			`{"metadata":{"annotations":{"a":"b"}}}`, 403, "forbidden"},
		{"take the lease of the controller manager", dns, "PUT", leasesPath + "/kube-controller-manager", "",
			newLease("kube-controller-manager", "worker", 3600), 403, "own lease"},
		{"create a lease with a generated name", dns, "POST", leasesPath, "",
			`{"metadata":{"generateName":"kube-dns-"},"spec":{"holderIdentity":"worker"}}`, 403, "own lease"},
		{"hold an election lease for an hour", ingress, "PUT", leasesPath + "/kube-ingress", "",
			newLease("kube-ingress", "worker", 3600), 403, "60 seconds at most"},
		{"give the load balancer addresses to another machine", network, "PUT", leasesPath + "/load-balancer-0", "",
			newLease("load-balancer-0", "other", 2), 403, "for itself"},
		{"patch an EndpointSlice", dns, "PATCH", slicesPath + "/kube-dns-worker", mergePatch,
			`{"metadata":{"labels":{"kubernetes.io/service-name":"kubernetes"}}}`, 403,
			"get, create, update, or delete"},
		{"apply an EndpointSlice", dns, "PATCH", slicesPath + "/kube-dns-x?fieldManager=x", applyPatch,
			newSlice("kube-dns", "kube-dns-x", "worker"), 403, "of its own"},
		{"publish another machine's address as an endpoint", dns, "PUT", slicesPath + "/kube-dns-worker", "",
			own("10.0.0.3", "worker"), 403, "is not an address of machine"},
		{"publish an address outside the cluster as an endpoint", dns, "PUT", slicesPath + "/kube-dns-worker", "",
			own("192.0.2.1", "worker"),
			403, "is not an address of machine"},
		{"publish an endpoint with hints for another machine", dns, "PUT", slicesPath + "/kube-dns-worker", "",
			own("10.0.0.2", "other"),
			403, "hints for the node"},
		{"add an endpoint to the service kubernetes", dns, "POST",
			"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "",
			newSlice("kubernetes", "kubernetes-2", "worker"), 403, "forbidden"},
		{"delete another machine's endpoint", dns, "DELETE", slicesPath + "/kube-dns-other", "", "", 403, "of its own"},
		{"use the user name without the group", noGroup, "PUT", leasesPath + "/kube-dns-worker", "",
			newLease("kube-dns-worker", "worker", 20), 403, "forbidden"},
		{"approve a certificate of another daemon", kubelet, "PUT",
			"/apis/certificates.k8s.io/v1/certificatesigningrequests/stolen/approval", "",
			newCSR(t, "stolen", "kubernetes.io/kube-apiserver-client", "system:kube-ingress:other",
				"system:kube-ingress"),
			403, "forbidden"},
		{"publish an endpoint of kube-dns as a kubelet", kubelet, "POST", slicesPath, "",
			newSlice("kube-dns", "kube-dns-worker", "worker"), 403, "forbidden"},
		// 2: exec, attach and port-forward need the verb create, whatever the protocol and method.
		{"exec by GET", peeper, "GET", pods + "/exec?command=id&stdout=true", "", "", 403,
			`cannot create resource \"pods/exec\"`},
		{"attach by GET", peeper, "GET", pods + "/attach?stdout=true", "", "", 403,
			`cannot create resource \"pods/attach\"`},
		{"forward a port by GET", peeper, "GET", pods + "/portforward?ports=80", "", "", 403,
			`cannot create resource \"pods/portforward\"`},
		{"exec by POST", peeper, "POST", pods + "/exec?command=id&stdout=true", "", "", 403, "cannot create"},
		// 10: external IPs.
		{"use a machine's address as an external IP", eve, "PATCH", services + "/web", mergePatch,
			`{"spec":{"externalIPs":["10.0.0.3"]}}`, 403, "an address of machine other"},
		{"use the API's address as an external IP", eve, "POST", services, "",
			`{"metadata":{"name":"api"},"spec":{"ports":[{"port":6443}],"externalIPs":["10.0.0.1"]}}`, 403,
			"spec.externalIPs[0]"},
		{"use the API's address by server-side apply", eve, "PATCH", services + "/api?fieldManager=x", applyPatch,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"api"},"spec":{"ports":[{"port":6443}],` +
				`"externalIPs":["192.0.2.1","10.0.0.1"]}}`, 403, "spec.externalIPs[1]"},
		{"use the API's address as an IPv4-mapped IPv6 address", eve, "POST", services, "",
			`{"metadata":{"name":"api"},"spec":{"ports":[{"port":6443}],"externalIPs":["::ffff:10.0.0.1"]}}`, 422,
			"spec.externalIPs[0]"},
		// 12: a Role whose groups, resources and verbs multiply to a large number of rights.
		{"write a Role of 27 million rights", eve, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles",
			"",
			fmt.Sprintf(`{"metadata":{"name":"product"},"rules":[{"apiGroups":[%s],"resources":[%s],"verbs":[%s]}]}`,
				product, product, product), 403, "is attempting to grant RBAC permissions not currently held"},
		// 16: scopes of resource quotas.
		{"enter the scope of an exceeded quota by a deadline", eve, "PATCH", pods, mergePatch,
			`{"spec":{"activeDeadlineSeconds":60}}`,
			403, "exceeded quota: ending"},
		// 41: a resourceVersion on create.
		{"create an object with a resourceVersion", eve, "POST", "/api/v1/namespaces/shop/configmaps", "",
			`{"metadata":{"name":"c","resourceVersion":"7"}}`, 400, "resourceVersion should not be set"},
	}
}

// TestAttacksAreRejected sends each attack, and checks that the server rejects it and that no object changed.
// Proves S12.
func TestAttacksAreRejected(t *testing.T) {
	s := startServer(t)
	admin := s.clientFor(certs.SuperAdmin())
	createFixtures(t, admin)
	createTenants(t, admin)
	if code, text := admin.do("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", jsonContent,
		[]byte(newCSR(t, "stolen", "kubernetes.io/kube-apiserver-client", "system:kube-ingress:other",
			"system:kube-ingress"))); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	versions := func() string {
		var all []string
		for _, path := range []string{leasesPath, slicesPath, "/api/v1/namespaces/shop/secrets",
			"/api/v1/namespaces/shop/services", "/api/v1/namespaces/shop/pods"} {
			code, text := admin.do("GET", path, jsonContent, nil)
			if code != 200 {
				t.Fatalf("%s: %d %s", path, code, text)
			}
			for _, item := range decodeObject(t, text)["items"].([]any) {
				m := item.(map[string]any)["metadata"].(map[string]any)
				all = append(all, fmt.Sprint(path, m["name"], m["resourceVersion"]))
			}
		}
		return strings.Join(all, "\n")
	}
	before := versions()
	for _, a := range listAttacks(t) {
		contentType := a.contentType
		if contentType == "" {
			contentType = jsonContent
		}
		path, _, _ := strings.Cut(a.path, "?")
		body := []byte(a.body)
		if a.method == "PUT" {
			body = s.withCurrentVersion(t, strings.TrimSuffix(path, "/approval"), a.body)
		}
		if code, text := s.clientFor(a.user).do(a.method, a.path, contentType, body); code != a.code ||
			!strings.Contains(text, a.text) {
			t.Errorf("%s: %d %.400s, want %d with %q", a.name, code, text, a.code, a.text)
		}
	}
	if after := versions(); after != before {
		t.Errorf("objects changed:\n%s\n\nbefore:\n%s", after, before)
	}
	// A permitted request succeeds, so the attacks do not fail only because every request fails.
	if code, text := s.clientFor(certs.Replica("kube-ingress", "worker")).do("GET",
		"/api/v1/namespaces/shop/secrets/tls",
		jsonContent, nil); code != 200 {
		t.Errorf("get the certificate that an Ingress refers to: %d %s", code, text)
	}
}
