package apiserver

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// transports are the connections to kubelets, by node: each verifies the name of its own.
type transports struct {
	mu     sync.Mutex
	byNode map[string]*http.Transport
}

// maxTransports bounds how many nodes' connections are kept.
const maxTransports = 256

func (t *transports) of(config *tls.Config, node string) http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.byNode[node]; have != nil {
		return have
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
	if t.byNode == nil {
		t.byNode = map[string]*http.Transport{}
	}
	t.byNode[node] = made
	return made
}

func encodeStatus(st metav1.Status) []byte {
	st.Kind, st.APIVersion = "Status", "v1"
	data, err := json.Marshal(st)
	if err != nil {
		return nil
	}
	return data
}
