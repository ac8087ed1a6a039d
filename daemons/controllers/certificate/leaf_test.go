package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/certs"
)

func request(t *testing.T, signer string, template x509.CertificateRequest, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: signer, Usages: usages, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
}

func TestSignersGrantWhatTheyAreForAndNothingElse(t *testing.T) {
	person := x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice", Organization: []string{"dev"}}}
	node := x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	serving := node
	serving.DNSNames = []string{"n1"}
	mailed := serving
	mailed.EmailAddresses = []string{"n1@example.com"}
	const signature = certificatesv1.UsageDigitalSignature
	const clients, kubelets, servers = certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	for _, c := range []struct {
		name    string
		request *certificatesv1.CertificateSigningRequest
		granted bool
	}{
		{"a person", request(t, clients, person, certificatesv1.UsageClientAuth), true},
		{"a server's usage from the clients' signer", request(t, clients, person, certificatesv1.UsageServerAuth), false},
		{"names in a client certificate", request(t, clients, serving, certificatesv1.UsageClientAuth), false},
		{"a person for whatever", request(t, clients, person, signature), false},
		{"a node", request(t, kubelets, node, certificatesv1.UsageClientAuth, signature), true},
		{"a node that does not sign", request(t, kubelets, node, certificatesv1.UsageClientAuth), false},
		{"a person as a node", request(t, kubelets, person, certificatesv1.UsageClientAuth, signature), false},
		{"a node's server", request(t, servers, serving, certificatesv1.UsageServerAuth, signature, certificatesv1.UsageKeyEncipherment), true},
		{"a node's server for whatever", request(t, servers, serving, signature), false},
		{"a server with a mail address", request(t, servers, mailed, certificatesv1.UsageServerAuth, signature), false},
		{"a server without a name", request(t, servers, node, certificatesv1.UsageServerAuth, signature), false},
		{"garbage", &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Request: []byte("x"), SignerName: clients}}, false},
	} {
		if _, _, err := Leaf(c.request, 0); (err == nil) != c.granted {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRequestsAreDroppedInTime(t *testing.T) { // S21
	made := time.Unix(1000, 0)
	pending := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
	if got := Expiry(pending); !got.Equal(made.Add(keepPending)) {
		t.Errorf("pending: %v", got)
	}
	decided := pending.DeepCopy()
	decided.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{LastUpdateTime: metav1.NewTime(made.Add(time.Minute))}}
	if got := Expiry(decided); !got.Equal(made.Add(time.Minute + keepDecided)) {
		t.Errorf("decided: %v", got)
	}
}

func TestCertificatesLastAsLongAsIsConfiguredAtMost(t *testing.T) {
	person := x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice", Organization: []string{"dev"}}}
	r := request(t, certificatesv1.KubeAPIServerClientSignerName, person, certificatesv1.UsageClientAuth)
	for _, c := range []struct{ asked, longest, want time.Duration }{
		{0, 0, certs.LeafLifetime}, {0, time.Hour, time.Hour}, {2 * time.Hour, time.Hour, time.Hour}, {20 * time.Minute, time.Hour, 20 * time.Minute},
	} {
		if r.Spec.ExpirationSeconds = nil; c.asked > 0 {
			seconds := int32(c.asked / time.Second)
			r.Spec.ExpirationSeconds = &seconds
		}
		if _, leaf, err := Leaf(r, c.longest); err != nil || leaf.Lifetime != c.want {
			t.Errorf("asked for %s, at most %s: %s, %v", c.asked, c.longest, leaf.Lifetime, err)
		}
	}
}

func TestHowLongRequestsAreKept(t *testing.T) {
	made := time.Unix(1_000_000, 0)
	said := func(kinds ...certificatesv1.RequestConditionType) (list []certificatesv1.CertificateSigningRequestCondition) {
		for i, kind := range kinds {
			list = append(list, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: "True", LastUpdateTime: metav1.NewTime(made.Add(time.Duration(i+1) * time.Minute))})
		}
		return list
	}
	ca, err := certs.NewCA("ca", 10*time.Minute, made)
	if err != nil {
		t.Fatal(err)
	}
	short, err := certs.ParseCert(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		conditions []certificatesv1.CertificateSigningRequestCondition
		cert       []byte
		want       time.Time
	}{
		"pending":                               {nil, nil, made.Add(24 * time.Hour)},
		"approved":                              {said(certificatesv1.CertificateApproved), nil, made.Add(time.Hour + time.Minute)},
		"denied":                                {said(certificatesv1.CertificateDenied), nil, made.Add(time.Hour + time.Minute)},
		"failed":                                {said(certificatesv1.CertificateApproved, certificatesv1.CertificateFailed), nil, made.Add(time.Hour + 2*time.Minute)},
		"its certificate ends before":           {said(certificatesv1.CertificateApproved), ca.Cert, short.NotAfter},
		"its certificate is none that is known": {said(certificatesv1.CertificateApproved), []byte("text"), made.Add(time.Hour + time.Minute)},
	} {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
		r.Status.Conditions, r.Status.Certificate = c.conditions, c.cert
		if got := Expiry(r); !got.Equal(c.want) {
			t.Errorf("%s: until %s, want %s", name, got, c.want)
		}
	}
}
