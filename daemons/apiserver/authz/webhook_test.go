package authz

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWebhooksDecideMatchingRequests(t *testing.T) {
	var requests atomic.Int32
	var broken atomic.Bool
	server := newReviewServer(t, &requests, &broken)
	defer server.Close()
	kubeconfig := writeFile(t, "hook.conf", fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: "+
		"{server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", server.URL))
	now := time.Now()
	authorizer, err := OpenConfigured(writeFile(t, "authorization.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: secrets
  webhook:
    timeout: 3s
    authorizedTTL: 1m
    unauthorizedTTL: 1m
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: `+kubeconfig+`}
    matchConditions:
    - expression: has(request.resourceAttributes) && request.resourceAttributes.resource == 'secrets'
    - expression: "!('system:nodes' in request.groups)"
- {type: Node, name: node}
- {type: RBAC, name: rbac}
`), apifake.New(), func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pods := secretRequest("")
	pods.GroupVersionResource.Resource = "pods"
	ask := func(user string, r api.Request, groups ...string) (api.Decision, string, error) {
		return authorizer.Authorize(context.Background(), api.User{Name: user, Groups: groups}, r)
	}
	for range 3 {
		if d, reason, err := ask("ann", secretRequest("a")); d != api.Allow || reason != "a friend" || err != nil {
			t.Fatalf("%v %q %v", d, reason, err)
		}
		if d, reason, _ := ask("eve", secretRequest("a")); d != api.Deny || reason != "no friend" {
			t.Fatalf("%v %q", d, reason)
		}
		if d, _, _ := ask("bob", secretRequest("a")); d != api.NoOpinion {
			t.Fatal(d)
		}
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("it was asked %d times, want 3", n)
	}
	for _, c := range []struct {
		user  string
		r     api.Request
		group string
		want  api.Decision
	}{{"ann", pods, "x", api.NoOpinion}, {"ann", secretRequest("a"), "system:nodes", api.NoOpinion},
		{"eve", secretRequest("a"), api.GroupMasters, api.Allow},
		{"eve", api.Request{Verb: "get", Path: "/x"}, "x", api.NoOpinion}} {
		if d, _, err := ask(c.user, c.r, c.group); d != c.want || err != nil {
			t.Errorf("%s of %s: %v %v, want %v", c.user, c.group, d, err, c.want)
		}
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("it was asked although its conditions do not match")
	}
	broken.Store(true)
	if d, _, err := ask("ann", secretRequest("b")); d != api.Deny || err == nil {
		t.Errorf("when it does not answer: %v %v, want the failure policy", d, err)
	}
	if d, _, _ := ask("ann", secretRequest("a")); d != api.Allow {
		t.Errorf("a cached answer is not used")
	}
	now = now.Add(time.Minute)
	if d, _, _ := ask("ann", secretRequest("a")); d != api.Deny {
		t.Errorf("a cached answer does not expire")
	}
}

// secretRequest returns a request to get a Secret.
func secretRequest(name string) api.Request {
	r := api.Request{Verb: "get", Resource: true, Namespace: "shop", Name: name}
	r.GroupVersionResource.Resource, r.GroupVersionResource.Version = "secrets", "v1"
	return r
}

// newReviewServer starts a webhook that allows ann and denies eve. It counts requests, and fails while it is broken.
func newReviewServer(t *testing.T, requests *atomic.Int32, broken *atomic.Bool) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if broken.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		switch review.Spec.User {
		case "ann":
			review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "a friend"}
		case "eve":
			review.Status = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no friend"}
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
}

// A webhook receives the selectors of a request, so it can allow a selection without allowing all objects. It receives
// them for verbs that have selectors, and as far as they can be expressed.
// Proves S12.
func TestWebhooksReceiveSelectors(t *testing.T) {
	for _, c := range []struct{ verb, fields, labels, want string }{
		{"list", "spec.nodeName=n1,status.phase!=Failed", "", `{"fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n1"]},{"key":"status.phase","operator":"NotIn","values":["Failed"]}]},"verb":"list"}`},
		{"watch", "", "a in (b,c),!d,e", `{"labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b","c"]},{"key":"d","operator":"DoesNotExist"},{"key":"e","operator":"Exists"}]},"verb":"watch"}`},
		{"deletecollection", "", "a!=b,n>3", `{"labelSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b"]}]},"verb":"deletecollection"}`},
		{"get", "spec.nodeName=n1", "a=b", `{"verb":"get"}`},
		{"list", "=,", "((", `{"verb":"list"}`},
		{"list", "", "", `{"verb":"list"}`},
	} {
		got := reviewOf(api.User{Name: "ann"},
			api.Request{Resource: true, Verb: c.verb, FieldSelector: c.fields, LabelSelector: c.labels})
		text, err := json.Marshal(got.Spec.ResourceAttributes)
		var current, want any
		if err != nil || json.Unmarshal(text, &current) != nil || json.Unmarshal([]byte(c.want), &want) != nil ||
			!reflect.DeepEqual(current, want) {
			t.Errorf("%s %q %q:\n got %s\nwant %s", c.verb, c.fields, c.labels, text, c.want)
		}
	}
}

func TestInvalidAuthorizationConfigurationsAreRejected(t *testing.T) {
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n"
	for text, want := range map[string]string{
		head: "at least one authorization mode must be defined",
		head + "authorizers: [{type: RBAC, name: a}, {type: RBAC, name: b}]": "Duplicate value",
		head + "authorizers: [{type: ABAC, name: a}]":                        "Unsupported value",
		head + "authorizers: [{type: Webhook, name: a}]":                     "Required value",
		head + "authorizer: []":                                              "unknown field",
	} {
		if _, err := OpenConfigured(writeFile(t, "a.yaml", text), apifake.New(), nil,
			slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A change of an authorizer's kubeconfig is a change of the configuration that names it.
// Proves S12.
func TestAuthorizerKubeconfigsAreReloaded(t *testing.T) {
	review := func(reason string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).
				Encode(authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{
					Allowed: true, Reason: reason}})
		}))
		t.Cleanup(server.Close)
		return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\ncontexts: "+
			"[{name: a, context: {cluster: a}}]\ncurrent-context: a\n", server.URL)
	}
	kubeconfig := writeFile(t, "hook.conf", review("one"))
	authorizer, err := OpenConfigured(writeFile(t, "authorization.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: friends
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: `+kubeconfig+`}
`), apifake.New(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text, reason string
		fails        bool
	}{{"", "one", false}, {review("two"), "two", false}, {"a: [", "two", true}, {review("three"), "three", false}} {
		if step.text != "" {
			if err := os.WriteFile(kubeconfig, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := authorizer.Reload(); (err != nil) != step.fails {
				t.Errorf("%q: %v", step.text, err)
			}
		}
		if _, reason, err := authorizer.Authorize(t.Context(), api.User{Name: "ann"},
			api.Request{Verb: "get", Path: "/x"}); reason != step.reason ||
			err != nil {
			t.Errorf("%q, %v; want %q", reason, err, step.reason)
		}
	}
}
