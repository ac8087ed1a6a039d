package metrics

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/certs"
)

// kubelet serves as the kubelet of a node, and returns that node.
func kubelet(t *testing.T, ca certs.Pair, name string, h http.HandlerFunc) *corev1.Node {
	t.Helper()
	pair, err := certs.Issue(ca, certs.KubeletServer(name, nil), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	shown, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca.Cert)
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{shown},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    trusted,
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(at.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	n := node(name)
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "nowhere.invalid"},
		{Type: corev1.NodeInternalIP, Address: at.Hostname()},
	}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	return n
}

func TestKubeletRequestsAreAuthenticated(t *testing.T) {
	ca, _ := newAuthority(t, "kubernetes")
	pair, err := certs.Issue(ca, certs.Daemon("metrics-server"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := certs.Kubeconfig("c", "https://127.0.0.1:6443", "metrics-server", ca.Cert, pair)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	asks, err := newKubelets(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	good := kubelet(t, ca, "a", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" for "+r.TLS.PeerCertificates[0].Subject.CommonName)
	})
	body, err := asks.Read(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil || string(data) != "/metrics/resource for system:metrics-server" {
		t.Errorf("%s, %v", data, err)
	}
	elsewhere := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
	}
	other := kubelet(t, ca, "b", elsewhere)
	pretender := other.DeepCopy()
	pretender.Name = "a2"
	nowhere := node("c")
	for want, n := range map[string]*corev1.Node{"302 Found": other, "certificate is valid " +
		"for": pretender, "has not said where its kubelet listens": nowhere} {
		if body, err := asks.Read(t.Context(), n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %s", n.Name, body, err, want)
		}
	}
	asks.Release("a")
	if len(asks.clients) != 2 {
		t.Errorf("%d clients are kept", len(asks.clients))
	}
}
