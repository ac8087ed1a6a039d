package ingress

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/certs"
	"clusterctl/kube/kubernetes/fake"
)

// rotation is a series of certificates for one name.
type rotation struct {
	ca      certs.Pair
	roots   *x509.CertPool
	mu      sync.Mutex
	serials []string // in order of creation
}

func newRotation(t *testing.T) *rotation {
	ca, err := certs.NewCA("test", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r := &rotation{ca: ca, roots: x509.NewCertPool()}
	r.roots.AppendCertsFromPEM(ca.Cert)
	return r
}

// nextSecret returns the secret with a new certificate.
func (r *rotation) nextSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	pair, err := certs.Issue(
		r.ca,
		certs.Request{
			CommonName: "a.example",
			Hosts:      []string{"a.example"},
			Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		},
		time.Now(),
	)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serials = append(r.serials, cert.Leaf.SerialNumber.String())
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-tls"},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key},
	}
}

// indexOf returns the index of a certificate, or -1 for an unknown one.
func (r *rotation) indexOf(cert *x509.Certificate) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, serial := range r.serials {
		if serial == cert.SerialNumber.String() {
			return i
		}
	}
	return -1
}

// servedIndex sends a request on a new connection, and returns the index of the certificate.
func (r *rotation) servedIndex(port int) (int, error) {
	client := http.Client{
		Timeout: 20 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: r.roots, ServerName: "a.example"},
		},
	}
	req, err := http.NewRequest("GET", "https://127.0.0.1:"+strconv.Itoa(port), nil)
	if err != nil {
		return 0, err
	}
	req.Host = "a.example"
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || string(text) != "ok" {
		return 0, fmt.Errorf("answer %q, %w", text, err)
	}
	return r.indexOf(res.TLS.PeerCertificates[0]), nil
}

// The certificate of an Ingress is renewed while the daemon runs, while it is stopped, and while it restarts. Clients
// never get another certificate, nor an older one than before. After a restart, waiting clients get the newest one, and
// no handshake fails.
// Proves S32.
func TestCertificatesRotateWhileTheDaemonRestarts(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
	defer pod.Close()
	manager := newFakeSystemd(t)
	t.Setenv("NOTIFY_SOCKET", manager.path)
	all, cfg, r := objects(pod.Listener.Addr().String()), settings(t), newRotation(t)
	all[3].(*networkingv1.Ingress).Spec.TLS = []networkingv1.IngressTLS{
		{Hosts: []string{"a.example"}, SecretName: "web-tls"},
	}
	clients := fake.NewClientset(append(all, r.nextSecret(t))...)
	stop := startDaemon(t, cfg, clients, nil)
	given := map[string]*os.File{}
	for range 2 {
		name, fd := manager.nextSocket(t)
		given[name] = os.NewFile(uintptr(fd), name)
		defer given[name].Close()
	}
	kept := func() map[string][]net.Listener {
		list := map[string][]net.Listener{}
		for name, file := range given {
			ln, err := net.FileListener(file)
			if err != nil {
				t.Fatal(err)
			}
			list[name] = []net.Listener{ln}
		}
		return list
	}
	rotate := func() int {
		t.Helper()
		if _, err := clients.CoreV1().Secrets("default").Update(t.Context(), r.nextSecret(t),
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.serials) - 1
	}
	// A client connects continuously.
	var last, requests atomic.Int64
	finished, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r.connectUntil(t, cfg.HTTPSPort, finished, &last, &requests)
	}()
	shows := func(what string, number int) {
		t.Helper()
		eventually(t, what+" the newest certificate is shown", func() bool { return last.Load() == int64(number) })
	}
	shows("at first", 0)
	for range 3 {
		shows("while it runs", rotate())
		stop()
		waiting := make(chan error, 5)
		newest := rotate()
		for range cap(waiting) {
			go func() {
				got, err := r.servedIndex(cfg.HTTPSPort)
				if err == nil && got != newest {
					err = fmt.Errorf("certificate %d is shown, and %d is the newest", got, newest)
				}
				waiting <- err
			}()
		}
		stop = startDaemon(t, cfg, clients, kept())
		for range cap(waiting) {
			if err := <-waiting; err != nil {
				t.Errorf("a client that connected during the restart: %v", err)
			}
		}
		shows("after a restart", newest)
	}
	close(finished)
	<-done
	if requests.Load() < 10 {
		t.Errorf("only %d requests were made", requests.Load())
	}
}

// connectUntil connects until done is closed. Clients must not get an older certificate than before.
func (r *rotation) connectUntil(t *testing.T, port int, done chan struct{}, last, requests *atomic.Int64) {
	for {
		select {
		case <-done:
			return
		default:
		}
		got, err := r.servedIndex(port)
		if err != nil {
			t.Errorf("a new client: %v", err)
			return
		}
		if int64(got) < last.Load() {
			t.Errorf("certificate %d is shown after %d", got, last.Load())
		}
		last.Store(int64(got))
		requests.Add(1)
	}
}
