// Command bookshop is an aggregated API server as users write them, for the tests. It serves the books of
// bookshop.example.com. It accepts the user name in a request's headers if the request comes from the cluster's API
// server. It registers itself.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/run"
)

func main() {
	namespace := flag.String("namespace", "default", "where the server runs, behind the service named bookshop")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, namespace string) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	b := &bookshop{client: client}
	proxies, err := b.readTrustedProxies(ctx)
	if err != nil {
		return err
	}
	pair, public, err := newCertificate(namespace)
	if err != nil {
		return err
	}
	if err := register(ctx, untyped, namespace, public); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", ":8443")
	if err != nil {
		return err
	}
	tlsConfig := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    proxies,
	}
	return run.Serve(ctx, ln, b, tlsConfig, 5*time.Second, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// bookshop serves the API.
type bookshop struct {
	client  kubernetes.Interface
	allowed []string // common names of proxies whose headers are accepted
}

// readTrustedProxies reads from the cluster which proxies its aggregated servers accept.
func (b *bookshop) readTrustedProxies(ctx context.Context) (*x509.CertPool, error) {
	stored, err := b.client.CoreV1().
		ConfigMaps("kube-system").
		Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read whom to believe: %w", err)
	}
	if err := json.Unmarshal([]byte(stored.Data["requestheader-allowed-names"]), &b.allowed); err != nil {
		return nil, fmt.Errorf("read the names of proxies: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(stored.Data["requestheader-client-ca-file"])) {
		return nil, errors.New("the cluster names no authority of proxies")
	}
	return pool, nil
}

// ServeHTTP implements http.Handler.
func (b *bookshop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		return
	}
	user := r.Header.Get("X-Remote-User")
	if user == "" || len(r.TLS.PeerCertificates) == 0 ||
		!slices.Contains(b.allowed, r.TLS.PeerCertificates[0].Subject.CommonName) {
		http.Error(w, "nobody who is believed says who asks", http.StatusUnauthorized)
		return
	}
	if answer, ok := apiDocuments[r.URL.Path]; ok {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
		return
	}
	namespace, name, ok := parseBookPath(r.URL.Path)
	if !ok || r.Method != http.MethodGet {
		http.NotFound(w, r)
		return
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: r.Header.Values("X-Remote-Group"),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace,
			Verb:      "get",
			Group:     group,
			Version:   "v1",
			Resource:  "books",
			Name:      name,
		},
	}}
	response, err := b.client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), review,
		metav1.CreateOptions{})
	if err != nil || !response.Status.Allowed {
		http.Error(w, fmt.Sprintf("%s may not read: %v", user, err), http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// an error means that the client has closed the connection
	_ = json.NewEncoder(w).Encode(bookObject(namespace, name, user))
}
