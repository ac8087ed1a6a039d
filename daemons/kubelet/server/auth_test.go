package server

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"clusterctl/daemons/config"
	"clusterctl/kube/kubernetes/fake"
)

// Each path requires its permission on the node. A client that may only get cannot run commands, not even with a
// WebSocket, which starts with GET.
// Proves S23.
func TestPathsMapToVerbsAndSubresources(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/metrics", "get metrics"},
		{"GET", "/metrics/resource", "get metrics"},
		{"GET", "/metricsx", "get proxy"},
		{"GET", "/stats/summary", "get stats"},
		{"POST", "/stats/summary", "create stats"},
		{"GET", "/logs/", "get log"},
		{"GET", "/healthz", "get healthz"},
		{"GET", "/healthz/syncloop", "get healthz"},
		{"GET", "/pods", "get pods"},
		{"GET", "/configz", "get configz"},
		{"GET", "/containerLogs/a/b/c", "get proxy"},
		{"GET", "/exec/a/b/c", "create proxy"},
		{"POST", "/exec/a/b/c", "create proxy"},
		{"GET", "/attach/a/b/c", "create proxy"},
		{"GET", "/portForward/a/b", "create proxy"},
		{"POST", "/run/a/b/c", "create proxy"},
		{"GET", "/%65xec/a/b/c", "create proxy"},
		{"DELETE", "/localVolumes/pvc-1", "delete proxy"},
	} {
		verb, subresource := requestAttributes(httptest.NewRequest(c.method, "https://n"+c.path, nil))
		if got := verb + " " + subresource; got != c.want {
			t.Errorf("%s %s: %s, want %s", c.method, c.path, got, c.want)
		}
	}
}

// newTestAuthFilter returns the gate of a kubelet. The fake client passes each created resource to answer.
func newTestAuthFilter(t *testing.T, resource string, answer func(apiruntime.Object)) *authFilter {
	client := fake.NewClientset()
	client.PrependReactor("create", resource, func(a k8stesting.Action) (bool, apiruntime.Object, error) {
		object := a.(k8stesting.CreateAction).GetObject().DeepCopyObject()
		answer(object)
		return true, object, nil
	})
	file := config.DefaultKubeletFile()
	file.Authentication.X509.ClientCAFile = ""
	s := &Server{Config: Config{Node: "n1", File: &file, Client: client, Log: slog.New(slog.DiscardHandler)}}
	g, err := s.newAuthFilter()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Unauthenticated clients can send tokens as long as a header.
func TestCachedVerdictsOfInvalidTokensUseLittleMemory(t *testing.T) {
	g := newTestAuthFilter(t, "tokenreviews", func(apiruntime.Object) {})
	long := strings.Repeat("x", 60<<10)
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	g.s.Client.(interface{ ClearActions() }).ClearActions()
	before := held()
	for i := range 200 {
		if _, err := g.reviewToken(t.Context(), fmt.Sprint(long, i)); err == nil {
			t.Fatal("an invalid token is accepted")
		}
		g.s.Client.(interface{ ClearActions() }).ClearActions() // the fake client records every request
	}
	if after := held(); after > before+2<<20 {
		t.Errorf("200 invalid tokens take %d KiB", (after-before)>>10)
	}
	if len(g.verdicts) != 200 {
		t.Errorf("%d answers are cached, want 200", len(g.verdicts))
	}
}

// The authorization of a user can depend on the extra fields from its authenticator.
func TestVerdictsAreCachedPerUserWithExtra(t *testing.T) {
	g := newTestAuthFilter(t, "subjectaccessreviews", func(o apiruntime.Object) {
		r := o.(*authorizationv1.SubjectAccessReview)
		r.Status.Allowed = len(r.Spec.Extra["scopes"]) == 2
	})
	for _, row := range []struct {
		scopes  []string
		allowed bool
	}{{[]string{"read", "write"}, true}, {[]string{"read"}, false}, {[]string{"read write"}, false}, {nil, false}} {
		user := authenticationv1.UserInfo{Username: "u",
			Extra: map[string]authenticationv1.ExtraValue{"scopes": row.scopes}}
		allowed, err := g.authorize(httptest.NewRequest("GET", "https://n/metrics", nil), user)
		if err != nil || allowed != row.allowed {
			t.Errorf("a user with the scopes %q is allowed: %t, %v", row.scopes, allowed, err)
		}
	}
}
