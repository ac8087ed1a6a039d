package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/store/memory"
)

// getStatus returns the status code of a GET request.
func getStatus(t *testing.T, cfg *rest.Config, path string, header http.Header) int {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, cfg.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// A webhook that denies is called for every read, even if the next authorizer would allow it, and if the webhook's
// failure means no opinion.
// Proves S12.
func TestAuthorizationWebhookIsCalledForSingleReads(t *testing.T) {
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		if a := review.Spec.ResourceAttributes; a != nil && a.Resource == "clusterroles" && a.Name == "edit" {
			review.Status = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "not this one"}
		}
		_ = json.NewEncoder(w).Encode(review) // the client may have left
	}))
	defer hook.Close()
	s := memory.New()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	kubeconfig := writeFile(t, dir, "hook.conf", fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nclusters: [{name: a, "+
		"cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", hook.URL))
	c := serveCluster(t, s, func(cfg *config.APIServer) {
		cfg.AuthorizationConfig = writeFile(t, dir, "authorization.yaml", []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: denies
  webhook:
    timeout: 3s
    authorizedTTL: 1m
    unauthorizedTTL: 1m
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: NoOpinion
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: `+kubeconfig+`}
    matchConditions: [{expression: "request.user != 'nobody'"}]
- {type: RBAC, name: rbac}
`))
	})
	admin := c.configFor(certs.Admin())
	for range 2 { // the second result is cached
		if code := getStatus(t, admin, "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit",
			nil); code != http.StatusForbidden {
			t.Errorf("what the webhook denies is answered with %d", code)
		}
		if code := getStatus(t, admin, "/apis/rbac.authorization.k8s.io/v1/clusterroles/view",
			nil); code != http.StatusOK {
			t.Errorf("what it has no opinion on is answered with %d", code)
		}
	}
}

// The user in a front proxy's headers counts, even if the proxy itself has more rights. Trying the fast path first must
// not remove the headers.
// Proves S12.
func TestFrontProxyHeadersCountOnTheFastPath(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s, func(cfg *config.APIServer) { cfg.RequestheaderClientCAFile = cfg.ClientCAFile })
	admin := c.configFor(certs.Admin())
	for user, want := range map[string]int{"nobody": http.StatusForbidden, "": http.StatusOK} {
		header := http.Header{}
		if user != "" {
			header.Set("X-Remote-User", user)
		}
		if code := getStatus(t, admin, "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit", header); code != want {
			t.Errorf("a read for %q is answered with %d, want %d", user, code, want)
		}
	}
}
