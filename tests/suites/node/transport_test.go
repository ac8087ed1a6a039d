package node

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
)

func mustTransport(t *testing.T, cfg *rest.Config) http.RoundTripper {
	t.Helper()
	tr, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}
