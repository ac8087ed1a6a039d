package authz

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
)

// The authorizers follow the configuration file. While it is invalid, the former ones stay in use.
// Proves S12.
func TestAuthorizersFollowTheirFile(t *testing.T) {
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: Node, " +
		"name: node}\n- {type: RBAC, name: rbac}\n"
	path := writeFile(t, "authorization.yaml", head)
	authorizer, err := OpenConfigured(path, apifake.New(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	node := authorizer.Get()[1]
	for _, step := range []struct {
		name, text, err string
		want            api.Decision
	}{
		{"roles alone", head, "", api.NoOpinion},
		{"everybody", head + "- {type: AlwaysAllow, name: all}\n", "", api.Allow},
		{"no such type", head + "- {type: Oracle, name: all}\n", "Unsupported value", api.Allow},
		{"a webhook without its kubeconfig", strings.Replace(head, "- {type: Node, name: node}\n", `- type: Webhook
  name: hook
  webhook: {timeout: 3s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny, authorizedTTL: 1s, unauthorizedTTL: 1s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: /nowhere}}
`, 1), "no such file", api.Allow},
		{"nobody", head + "- {type: AlwaysDeny, name: none}\n", "", api.Deny},
	} {
		if err := os.WriteFile(path, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := authorizer.Reload(); (err == nil) != (step.err == "") ||
			err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: %v, want %q", step.name, err, step.err)
		}
		if d, _, _ := authorizer.Authorize(t.Context(), api.User{Name: "ann"},
			api.Request{Verb: "get", Path: "/x"}); d != step.want {
			t.Errorf("%s: %v, want %v", step.name, d, step.want)
		}
	}
	if authorizer.Get()[1] != node {
		t.Error("what the authorizer of nodes has learnt is forgotten")
	}
}
