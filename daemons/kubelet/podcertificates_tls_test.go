package kubelet

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// useSPIFFE makes the signer a CA that issues certificates with the SPIFFE ID of the pod's service account. It returns
// the CA certificate in PEM.
func (s *fakeSigner) useSPIFFE() (authority string) {
	s.t.Helper()
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pods"},
		NotBefore: s.now.Add(-time.Minute), NotAfter: s.now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, root, root, s.key.Public(), s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.answer = func(s *fakeSigner, r *certificatesv1.PodCertificateRequest) {
		stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		if err != nil || stub.CheckSignature() != nil {
			s.t.Errorf("the request does not prove possession of its key: %v", err)
			return
		}
		leaf := &x509.Certificate{SerialNumber: big.NewInt(int64(len(s.requests) + 1)),
			NotBefore: s.now.Add(-time.Minute),
			NotAfter:  s.now.Add(time.Hour),
			DNSNames:  []string{r.Spec.UnverifiedUserAnnotations["example.com/name"]},
			URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local",
				Path: "/ns/" + r.Namespace + "/sa/" + r.Spec.ServiceAccountName}},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
				x509.ExtKeyUsageClientAuth}}
		der, err := x509.CreateCertificate(rand.Reader, leaf, root, stub.PublicKey, s.key)
		if err != nil {
			s.t.Error(err)
			return
		}
		at := func(d time.Duration) *metav1.Time { t := metav1.NewTime(s.now.Add(d)); return &t }
		r.Status = certificatesv1.PodCertificateRequestStatus{
			CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
			NotBefore:        at(-time.Minute), BeginRefreshAt: at(30 * time.Minute), NotAfter: at(time.Hour),
			Conditions: []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued,
				Status: metav1.ConditionTrue}}}
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// Two pods can authenticate each other using only the files in their volumes.
//
//style:long one scenario: two pods get certificates, and three clients connect with them
func TestPodsAuthenticateEachOtherByCertificates(t *testing.T) {
	account := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			UID: types.UID("account-" + name)}}
	}
	n := newNode(t, account("shop"), account("buyer"))
	s := newFakeSigner(t, n.client)
	authority := s.useSPIFFE()
	if _, err := n.client.CertificatesV1().ClusterTrustBundles().Create(t.Context(),
		&certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "example.com:s:1"},
			Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/s",
				TrustBundle: authority}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.start()
	name, file := "example.com/s", func(pod, name string) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(n.cfg.RootDir, "pods", "uid-"+pod, "volumes", "kubernetes.io~projected",
			"v", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	config := func(pod string) *tls.Config {
		p := simplePod(pod)
		p.Spec.ServiceAccountName = pod
		p.Spec.Volumes = []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{PodCertificate: &corev1.PodCertificateProjection{SignerName: name, KeyType: "ECDSAP384",
						KeyPath: "key.pem", CertificateChainPath: "chain.pem", CredentialBundlePath: "all.pem",
						UserAnnotations: map[string]string{"example.com/name": pod + ".example"}}},
					{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: &name,
						LabelSelector: &metav1.LabelSelector{}, Path: "ca.pem"}},
				}}}}}
		n.create(p)
		n.until("the pod to be ready", func() bool { return isReady(n.pod(pod)) })
		pair, err := tls.X509KeyPair(file(pod, "chain.pem"), file(pod, "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		if whole, err := tls.X509KeyPair(file(pod, "all.pem"), file(pod, "all.pem")); err != nil ||
			!slices.EqualFunc(whole.Certificate, pair.Certificate, slices.Equal) {
			t.Errorf("all.pem differs from key.pem and chain.pem: %v", err)
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(file(pod, "ca.pem")) {
			t.Fatal("no authority is trusted")
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: trusted, ClientCAs: trusted,
			ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "shop.example"}
	}
	shop, buyer := config("shop"), config("buyer")
	ln, err := tls.Listen("tcp", "127.0.0.1:0", shop)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if c := conn.(*tls.Conn); c.HandshakeContext(t.Context()) == nil {
				_, _ = io.WriteString(c, c.ConnectionState().PeerCertificates[0].URIs[0].String())
			}
			conn.Close()
		}
	}()
	ask := func(c *tls.Config) (string, error) {
		conn, err := tls.Dial("tcp", ln.Addr().String(), c)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		reply, err := io.ReadAll(conn)
		return string(reply), err
	}
	if message, err := ask(buyer); err != nil || message != "spiffe://cluster.local/ns/default/sa/buyer" {
		t.Errorf("the other pod authenticates it as %q: %v", message, err)
	}
	stranger := buyer.Clone()
	stranger.Certificates = nil
	if message, err := ask(stranger); err == nil {
		t.Errorf("a client without a certificate got %q", message)
	}
	elsewhere := buyer.Clone()
	elsewhere.ServerName = "bank.example"
	if message, err := ask(elsewhere); err == nil {
		t.Errorf("the certificate of shop is accepted for bank, answer %q", message)
	}
}
