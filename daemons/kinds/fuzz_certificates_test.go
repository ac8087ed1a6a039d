package kinds

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzCertificates validates certificate requests, certificates and bundles with arbitrary bytes.
func FuzzCertificates(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(
		rand.Reader,
		&x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}},
			DNSNames: []string{"a"},
		},
		key,
	)
	if err != nil {
		f.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		IsCA:                  true,
		BasicConstraintsValid: true,
		NotAfter:              time.Now().Add(time.Hour),
	}
	authority, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}), request)
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority}), authority)
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: request}),
		[]byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, text, der []byte) {
		c := &certificatesv1.CertificateSigningRequest{
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    text,
				SignerName: "kubernetes.io/kube-apiserver-client-kubelet",
			},
		}
		c.Status.Certificate = text
		b := &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: string(text)}}
		p := &certificatesv1.PodCertificateRequest{
			Spec: certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: der},
		}
		p.Status.CertificateChain = string(text)
		p.Status.Conditions = []metav1.Condition{
			{
				Type:               certificatesv1.PodCertificateRequestConditionTypeIssued,
				Status:             metav1.ConditionTrue,
				Reason:             "Issued",
				LastTransitionTime: metav1.Now(),
			},
		}
		for _, k := range All() {
			switch k.GVK.Kind {
			case "CertificateSigningRequest":
				k.Validate(c)
				k.Status.Validate(c, &certificatesv1.CertificateSigningRequest{})
			case "ClusterTrustBundle":
				k.Validate(b)
			case "PodCertificateRequest":
				k.Validate(p)
				k.Status.Validate(p, &certificatesv1.PodCertificateRequest{})
			}
		}
	})
}
