package apiserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/store/memory"
)

// The server answers within the timeout that the client sends, even if the store hangs or the client does not finish
// its body.
// Proves S12.
func TestServerRespondsWithinTheClientTimeout(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	s := &hangingStore{Store: inner}
	c := serveCluster(t, s, func(cfg *config.APIServer) { cfg.RequestTimeout = 5 * time.Minute })
	admin := c.configFor(certs.Admin())
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string, body io.Reader) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(admin.Host, "/")+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return answer.StatusCode, string(text)
	}
	const path = "/api/v1/namespaces/default"
	for query, want := range map[string]struct {
		code int
		text string
	}{
		"?timeout=1m": {200, `"Namespace"`}, "?timeout=0s": {200, `"Namespace"`}, "?timeout=100h": {200, `"Namespace"`},
		"?timeout=soon": {400, "invalid timeout specified in the request URL"},
	} {
		if code, text := ask("GET", path+query, nil); code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s", query, code, text)
		}
	}
	unsent, more := io.Pipe()
	defer more.Close()
	if code, text := ask("POST", path+"/configmaps?timeout=300ms", unsent); code != 504 ||
		!strings.Contains(text, "did not complete within the allotted timeout") {
		t.Errorf("a body that does not come: %d %s", code, text)
	}
	s.isHanging.Store(true)
	defer s.isHanging.Store(false)
	if code, text := ask("GET", path+"?timeout=300ms", nil); code != 504 || !strings.Contains(text, `"Timeout"`) {
		t.Errorf("a store that hangs: %d %s", code, text)
	}
}
