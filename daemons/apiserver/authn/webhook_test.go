package authn

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// When the kubeconfig of the token webhook changes, the new server is called, and the results of the former one are
// dropped.
// Proves S12.
func TestWebhookFollowsItsKubeconfig(t *testing.T) {
	knows := func(name string) string {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			var review authenticationv1.TokenReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			review.Status = authenticationv1.TokenReviewStatus{
				Authenticated: true,
				User:          authenticationv1.UserInfo{Username: name},
			}
			_ = json.NewEncoder(rw).Encode(review)
		}))
		t.Cleanup(server.Close)
		return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\ncontexts: "+
			"[{name: a, context: {cluster: a}}]\ncurrent-context: a\n", server.URL)
	}
	w := newTestServer(t)
	w.cfg.AuthenticationTokenWebhookConfigFile = w.file(t.TempDir(), "hook.conf", []byte(knows("ann")))
	w.build()
	for _, step := range []struct {
		name, text, user string
		fails            bool
	}{
		{"as at the start", "", "ann", false},
		{"another", knows("bob"), "bob", false},
		{"nonsense", "a: [", "bob", true},
		{"a third", knows("eve"), "eve", false},
	} {
		if step.text != "" {
			if err := os.WriteFile(w.cfg.AuthenticationTokenWebhookConfigFile, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := w.authn.Webhook.Reload(); (err != nil) != step.fails {
				t.Errorf("%s: %v", step.name, err)
			}
		}
		if user, _, err := w.authn.Authenticate(bearerRequest("token")); user.Name != step.user {
			t.Errorf("%s: known as %q, want %q: %v", step.name, user.Name, step.user, err)
		}
	}
}
