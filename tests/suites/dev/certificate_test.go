package dev

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/certs"
)

// Proves S21.
func TestAnApprovedRequestIsSigned(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	requests := sharedClient.CertificatesV1().CertificateSigningRequests()
	csr := must[*certificatesv1.CertificateSigningRequest](t)(
		requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "alice-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName,
				Usages: []certificatesv1.KeyUsage{
					certificatesv1.UsageClientAuth,
				}, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
		}, metav1.CreateOptions{}),
	)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "approved"}}
	must[*certificatesv1.CertificateSigningRequest](t)(requests.UpdateApproval(t.Context(), csr.Name, csr,
		metav1.UpdateOptions{}))
	var signed []byte
	waitFor(t, "a certificate", func(ctx context.Context) (bool, any) {
		got, err := requests.Get(ctx, csr.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		signed = got.Status.Certificate
		return len(signed) > 0, got.Status
	})
	cert, err := certs.ParseCert(signed)
	if err != nil || cert.Subject.CommonName != "alice" {
		t.Fatalf("%v, %v", cert, err)
	}
}
