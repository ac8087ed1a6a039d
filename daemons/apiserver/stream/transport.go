package stream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeletTransports holds the transports to kubelets, by node. Each verifies that the certificate is for its node.
type kubeletTransports struct {
	mu     sync.Mutex
	byNode map[string]*http.Transport
}

// maxTransports is how many nodes' transports are kept.
const maxTransports = 256

func (t *kubeletTransports) transportOf(config *tls.Config, roots func() *x509.CertPool,
	node string) http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	if current := t.byNode[node]; current != nil {
		return current
	}
	if len(t.byNode) >= maxTransports {
		for name, old := range t.byNode {
			old.CloseIdleConnections()
			delete(t.byNode, name)
			break
		}
	}
	own := config.Clone()
	own.ServerName = node
	made := newTransport(own)
	if roots != nil {
		made.DialTLSContext = dialVerified(made.DialContext, own, roots)
	}
	if t.byNode == nil {
		t.byNode = map[string]*http.Transport{}
	}
	t.byNode[node] = made
	return made
}

// dialVerified returns a function that connects and verifies the server with the current authorities. A transport
// outlives them, so it cannot hold them itself.
func dialVerified(
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
	config *tls.Config,
	roots func() *x509.CertPool,
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		plain, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		now := config.Clone()
		now.RootCAs = roots()
		secured := tls.Client(plain, now)
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, plain.Close())
		}
		return secured, nil
	}
}

func encodeStatus(st metav1.Status) []byte {
	st.Kind, st.APIVersion = "Status", "v1"
	data, err := json.Marshal(st)
	if err != nil {
		return nil
	}
	return data
}
