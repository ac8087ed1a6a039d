package metrics

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	dialTimeout = 3 * time.Second
	// idleTimeout allows a connection to be reused for the next request.
	idleTimeout = 90 * time.Second
)

// kubelets reads from nodes' kubelets over the network. A kubelet's certificate must contain the node's name.
type kubelets struct {
	tls *tls.Config

	mu      sync.Mutex
	clients map[string]*http.Client // by node
}

// newKubelets returns the clients for kubelets. They use the credentials and the authority of the kubeconfig, because
// that authority also signs the kubelets' certificates.
func newKubelets(kubeconfig string) (*kubelets, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		err = rest.LoadTLSFiles(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	verify, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("use the credentials of kubeconfig %s: %w", kubeconfig, err)
	}
	if verify == nil || len(cfg.CAData) == 0 {
		return nil, fmt.Errorf("kubeconfig %s has no certificate authority", kubeconfig)
	}
	return &kubelets{tls: verify, clients: map[string]*http.Client{}}, nil
}

// clientFor returns the client for one node, with its own connection.
func (k *kubelets) clientFor(node string) *http.Client {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.clients[node]
	if c == nil {
		verify := k.tls.Clone()
		verify.ServerName, verify.MinVersion = node, tls.VersionTLS12
		c = &http.Client{
			Transport: &http.Transport{
				DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSClientConfig: verify,
				TLSHandshakeTimeout: dialTimeout,
				MaxIdleConns:        1, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxLine,
				DisableCompression: true,
			},
			// A kubelet's redirect would send our certificate to another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		k.clients[node] = c
	}
	return c
}

// Release implements Source.
func (k *kubelets) Release(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.clients[node]; c != nil {
		c.CloseIdleConnections()
		delete(k.clients, node)
	}
}

// Read implements Source.
func (k *kubelets) Read(ctx context.Context, node *corev1.Node) (io.ReadCloser, error) {
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	host := addressOf(node)
	if port == 0 || host == "" {
		return nil, fmt.Errorf("node %s has not said where its kubelet listens", node.Name)
	}
	url := "https://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/metrics/resource"
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := k.clientFor(node.Name).Do(q)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close() // the body is not needed
		return nil, fmt.Errorf("GET %s: %s", url, answer.Status)
	}
	return answer.Body, nil
}

// addressOf returns a node's address with the API server's order of preference for kubelets.
func addressOf(n *corev1.Node) string {
	for _, want := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeInternalDNS,
		corev1.NodeHostName} {
		for _, a := range n.Status.Addresses {
			if a.Type == want && a.Address != "" {
				return a.Address
			}
		}
	}
	return ""
}
