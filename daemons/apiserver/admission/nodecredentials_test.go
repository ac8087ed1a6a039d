package admission

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proves S11.
func TestNodesGetTokensOnlyForTheirPodsAudiences(t *testing.T) {
	o := storedObjects()
	o.Put(
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "granted"},
			Rules: []rbacv1.PolicyRule{
				{Verbs: []string{audienceVerb}, APIGroups: []string{""}, Resources: []string{"granted.example.com"}},
			},
		},
	)
	o.Put(
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "granted"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "granted"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
		},
	)
	for _, test := range []struct {
		audiences []string
		refused   string
	}{
		{nil, ""}, {[]string{""}, ""}, {[]string{"vault"}, ""}, {[]string{"secrets"}, ""}, {[]string{"disks"}, ""},
		{[]string{"granted.example.com"}, ""},
		{[]string{"evil"}, `audience "evil" not found in pod spec volume`},
		{[]string{"vault", "disks"}, "node may only request 0 or 1 audiences"},
	} {
		ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: test.audiences,
			BoundObjectRef: &authenticationv1.BoundObjectReference{
				APIVersion: "v1",
				Kind:       "Pod",
				Name:       "mine",
				UID:        "u",
			}}}
		err := runPlugins(t, o, newWrite(node1, "CREATE", ":serviceaccounts/token", "shop", "default", ask, nil))
		if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("audiences %q: %v, want %q", test.audiences, err, test.refused)
		}
	}
}

// Proves S11.
func TestNodesRequestCertificatesOnlyForThemselves(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ signer, name, refused string }{
		{certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:n1", ""},
		{certificatesv1.KubeletServingSignerName, "system:node:n1", ""},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:n2", "can only create a node CSR with " +
			"CN=system:node:n1"},
		{certificatesv1.KubeletServingSignerName, "system:node:n2", "can only create a node CSR with " +
			"CN=system:node:n1"},
		{"example.com/own", "anything", ""},
	} {
		der, err := x509.CreateCertificateRequest(rand.Reader,
			&x509.CertificateRequest{Subject: pkix.Name{CommonName: test.name, Organization: []string{"system:nodes"}}},
			key)
		if err != nil {
			t.Fatal(err)
		}
		csr := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: test.signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
		err = runPlugins(t, storedObjects(), newWrite(node1, "CREATE", "certificates.k8s.io:certificatesigningrequests",
			"", "c", csr, nil))
		if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s for %s: %v, want %q", test.signer, test.name, err, test.refused)
		}
	}
	csr := &certificatesv1.CertificateSigningRequest{
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName,
			Request:    []byte("none"),
		},
	}
	if err := runPlugins(t, storedObjects(),
		newWrite(node1, "CREATE", "certificates.k8s.io:certificatesigningrequests", "", "c", csr, nil)); err == nil ||
		!strings.Contains(err.Error(), "unable to parse csr") {
		t.Errorf("what is no request: %v", err)
	}
}
