package dev

import (
	"context"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"clusterctl/certs"
	daemonsconfig "clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/certificate"
	"clusterctl/kube/kubernetes"
	"clusterctl/provision/workload"
)

// An unknown kubelet requests its node's certificate with a bootstrap token. It gets the certificate automatically, and
// has the node's identity then. With a token of another kind, or a revoked one, it gets nothing.
// Proves S21.
func TestKubeletsJoinWithTokens(t *testing.T) {
	live, err := workload.Connect([]string{strings.TrimPrefix(restConfig.Host, "https://")}, restConfig.CAData,
		certs.Pair{Cert: restConfig.CertData, Key: restConfig.KeyData})
	if err != nil {
		t.Fatal(err)
	}
	token, stranger := createTokens(t, live)
	dir := t.TempDir()
	cfg := daemonsconfig.DefaultKubelet()
	cfg.HostnameOverride, cfg.Kubeconfig, cfg.BootstrapKubeconfig = "joined", filepath.Join(dir,
		"kubelet.conf"), filepath.Join(dir, "bootstrap.conf")
	log := slog.New(slog.DiscardHandler)
	with := func(token workload.Token) { t.Helper(); writeBootstrapConfig(t, cfg.BootstrapKubeconfig, token) }
	with(stranger)
	if err := certificate.Ensure(t.Context(), cfg, log); err == nil ||
		!strings.Contains(err.Error(), "forbidden") {
		t.Errorf("with a token of another kind: %v", err)
	}
	with(token)
	if err := certificate.Ensure(t.Context(), cfg, log); err != nil {
		t.Fatal(err)
	}
	joined, err := os.ReadFile(cfg.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	own, err := clientcmd.RESTConfigFromKubeConfig(joined)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certs.ParseCert(own.CertData)
	if err != nil || cert.Subject.CommonName != "system:node:joined" || cert.Subject.Organization[0] != "system:nodes" {
		t.Fatalf("it got the certificate of %v: %v", cert, err)
	}
	node := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(own))
	if _, err := node.CoreV1().Nodes().Get(t.Context(), "joined", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it may not look for its own node: %v", err)
	}
	if err := live.DeleteToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	// It no longer needs the token: its certificate is valid, and authenticates its own renewal.
	if err := certificate.Ensure(t.Context(), cfg, log); err != nil {
		t.Error(err)
	}
	if again, err := os.ReadFile(cfg.Kubeconfig); err != nil || string(again) != string(joined) {
		t.Errorf("a valid certificate is requested again: %v", err)
	}
	if pair, err := certificate.Request(t.Context(), node, "joined", log); err != nil || len(pair.Cert) == 0 {
		t.Errorf("renew it with itself: %v", err)
	}
	requests := must[*certificatesv1.CertificateSigningRequestList](t)(
		sharedClient.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{}),
	)
	approved := 0
	for _, r := range requests.Items {
		for _, c := range r.Status.Conditions {
			if c.Reason == "AutoApproved" {
				approved++
			}
		}
	}
	requestServingCertificate(t, node, filepath.Join(dir, "pki"))
	if approved != 2 {
		t.Errorf("%d requests were approved by themselves, want 2", approved)
	}
}

// A token for new nodes obtains no certificate of a node that exists. An event gives the reason, and the controllers go
// on.
// Proves S12, S21.
func TestTokensObtainNoCertificateOfAnExistingNode(t *testing.T) {
	live, err := workload.Connect([]string{strings.TrimPrefix(restConfig.Host, "https://")}, restConfig.CAData,
		certs.Pair{Cert: restConfig.CertData, Key: restConfig.KeyData})
	if err != nil {
		t.Fatal(err)
	}
	token := workload.Token{ID: "taken1", Secret: "0123456789abcdef", Description: "a test",
		Groups: []string{workload.NodeTokens}, Expires: time.Now().Add(time.Hour).Truncate(time.Second)}
	if err := live.CreateToken(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	nodes := must[*corev1.NodeList](t)(sharedClient.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1}))
	if len(nodes.Items) == 0 {
		t.Fatal("the cluster has no node")
	}
	existing := nodes.Items[0].Name
	ctx, cancel := context.WithCancel(t.Context())
	var requested sync.WaitGroup
	defer requested.Wait()
	defer cancel()
	holder := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(&rest.Config{Host: restConfig.Host,
		BearerToken: token.String(), TLSClientConfig: rest.TLSClientConfig{CAData: restConfig.CAData}}))
	requested.Go(func() {
		if pair, err := certificate.Request(ctx, holder, existing, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("it obtained a certificate of %d bytes", len(pair.Cert))
		}
	})
	waitFor(t, "an event that gives the reason", func(ctx context.Context) (bool, any) {
		list, err := sharedClient.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=NodeNameTaken"})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return strings.Contains(e.Message, "node "+existing+" exists")
		}), list.Items
	})
}

// writeBootstrapConfig writes a kubeconfig with a token.
func writeBootstrapConfig(t *testing.T, path string, token workload.Token) {
	t.Helper()
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"dev": {Server: restConfig.Host,
			CertificateAuthorityData: restConfig.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"kubelet-bootstrap": {Token: token.String()}},
		Contexts:       map[string]*clientcmdapi.Context{"b": {Cluster: "dev", AuthInfo: "kubelet-bootstrap"}},
		CurrentContext: "b",
	}, path); err != nil {
		t.Fatal(err)
	}
}

// createTokens creates a token for nodes, and one for other clients.
func createTokens(t *testing.T, live *workload.Live) (token, stranger workload.Token) {
	token = workload.Token{
		ID:          "join01",
		Secret:      "0123456789abcdef",
		Description: "a test",
		Groups:      []string{workload.NodeTokens},
		Expires:     time.Now().Add(time.Hour).Truncate(time.Second),
	}
	stranger = workload.Token{
		ID:     "join02",
		Secret: "0123456789abcdef",
		Groups: []string{"system:bootstrappers:others"},
	}
	for _, made := range []workload.Token{token, stranger} {
		if err := live.CreateToken(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	list, err := live.Tokens(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != "join01" || !list[0].Expires.Equal(token.Expires) ||
		list[0].Groups[0] != workload.NodeTokens ||
		!list[1].Expires.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	return token, stranger
}

// requestServingCertificate makes the kubelet of a node request a serving certificate. It gets the certificate after an
// approval, keeps it, and requests another when its addresses change.
func requestServingCertificate(t *testing.T, node kubernetes.Interface, dir string) {
	t.Helper()
	// current waits until the certificate has the given number of addresses.
	current := func(addresses int, ips ...string) *x509.Certificate {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		asking, err := certificate.NewServing(node, "joined", ips, dir, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		var kept sync.WaitGroup
		defer kept.Wait()
		defer cancel()
		kept.Go(func() { asking.Run(ctx) })
		for {
			if c := asking.Current(); c != nil && len(c.Leaf.IPAddresses) == addresses {
				return c.Leaf
			}
			requests := sharedClient.CertificatesV1().CertificateSigningRequests()
			list := must[*certificatesv1.CertificateSigningRequestList](t)(requests.List(ctx, metav1.ListOptions{}))
			for _, r := range list.Items {
				if r.Spec.SignerName == certificatesv1.KubeletServingSignerName && len(r.Status.Conditions) == 0 {
					r.Status.Conditions = append(
						r.Status.Conditions,
						certificatesv1.CertificateSigningRequestCondition{
							Type:   certificatesv1.CertificateApproved,
							Status: "True",
							Reason: "Looked",
						},
					)
					must[*certificatesv1.CertificateSigningRequest](t)(
						sharedClient.CertificatesV1().
							CertificateSigningRequests().
							UpdateApproval(ctx, r.Name, &r, metav1.UpdateOptions{}),
					)
				}
			}
			select {
			case <-ctx.Done():
				t.Fatal("there is no serving certificate")
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	first := current(1, "192.0.2.7")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(restConfig.CAData)
	for _, name := range []string{"joined", "192.0.2.7"} {
		if _, err := first.Verify(x509.VerifyOptions{Roots: pool, DNSName: name,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again := current(1, "192.0.2.7"); !again.Equal(first) {
		t.Error("a certificate that is good is not kept")
	}
	if other := current(2, "192.0.2.7", "192.0.2.8"); other.Equal(first) {
		t.Error("other addresses, the same certificate")
	}
}
