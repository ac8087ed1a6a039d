package conformance

import (
	"strings"
	"testing"

	"clusterctl/certs"
)

// A client without a right gets upstream's message, and an unauthenticated client is refused.
// Proves S11.
func TestUnauthorizedRequestsAreRejected(t *testing.T) {
	s := startServer(t, openStore(t))
	admin, anonymous := s.clientFor(t, certs.Admin()), s.clientWith(t)
	authenticated := s.clientFor(t, certs.Request{CommonName: "somebody", Organizations: []string{"some"}})
	admin.createNamespace(t, "a")

	for _, c := range []struct {
		call    call
		message string
	}{
		{get("/api/v1/namespaces/a/pods"), `pods is forbidden: User "somebody" cannot list resource "pods" in API group "" in the namespace "a"`},
		{get("/api/v1/pods"), `pods is forbidden: User "somebody" cannot list resource "pods" in API group "" at the cluster scope`},
		{get("/api/v1/pods?watch=1"), `pods is forbidden: User "somebody" cannot watch resource "pods" in API group "" at the cluster scope`},
		{get("/apis/apps/v1/namespaces/a/deployments/d"), `deployments.apps "d" is forbidden: User "somebody" cannot get resource "deployments" in API group "apps" in the namespace "a"`},
		{post("/api/v1/namespaces/a/configmaps", object{"metadata": object{"name": "c"}}), `configmaps is forbidden: User "somebody" cannot create resource "configmaps" in API group "" in the namespace "a"`},
		{patch("/api/v1/namespaces/a/pods/p/status", "merge-patch+json", object{}), `pods "p" is forbidden: User "somebody" cannot patch resource "pods/status" in API group "" in the namespace "a"`},
		{remove("/api/v1/namespaces/a/pods", nil), `pods is forbidden: User "somebody" cannot deletecollection resource "pods" in API group "" in the namespace "a"`},
		{get("/metrics"), `forbidden: User "somebody" cannot get path "/metrics"`},
	} {
		a := authenticated.mustRefuse(t, c.call, 403, "Forbidden", c.message)
		if a.code == 403 && strings.Contains(c.message, "deployments") &&
			(a.textAt("details.name") != "d" || a.textAt("details.kind") != "deployments" ||
				a.textAt("details.group") != "apps") {
			t.Errorf("details %v", a.valueAt("details"))
		}
	}
	for _, path := range []string{"/api", "/api/v1/pods", "/apis", "/openapi/v2", "/metrics"} {
		anonymous.mustRefuse(t, get("%s", path), 401, "Unauthorized", "Unauthorized")
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/livez/ping", "/version"} {
		if a := anonymous.do(t, get("%s", path)); a.code != 200 {
			t.Errorf("%s without credentials: %d %s", path, a.code, a.raw)
		}
	}
	bad := get("/api/v1/pods")
	bad.header = map[string][]string{"Authorization": {"Bearer nonsense"}}
	anonymous.mustRefuse(t, bad, 401, "Unauthorized", "Unauthorized")
}

// The health endpoints answer ok, and list their checks if verbose is set.
// Proves S11.
func TestHealthEndpointsAnswerByCheck(t *testing.T) {
	c := sharedClient(t)
	for _, path := range []string{"/livez", "/readyz", "/healthz"} {
		if a := c.mustAnswer(t, 200, get("%s", path)); string(a.raw) != "ok" {
			t.Errorf("%s: %s", path, a.raw)
		}
		a := c.mustAnswer(t, 200, get("%s?verbose", path))
		if !strings.Contains(string(a.raw), "[+]ping ok") ||
			!strings.Contains(string(a.raw), strings.TrimPrefix(path, "/")+" check passed") {
			t.Errorf("%s?verbose: %s", path, a.raw)
		}
	}
	if a := c.mustAnswer(t, 200, get("/readyz?verbose&exclude=etcd")); !strings.Contains(string(a.raw),
		"[+]etcd excluded: ok") {
		t.Errorf("excluded: %s", a.raw)
	}
	c.mustAnswer(t, 200, get("/readyz/etcd"))
	if a := c.do(t, get("/readyz/nothing")); a.code != 404 {
		t.Errorf("a check that is not there: %d", a.code)
	}
	v := c.mustAnswer(t, 200, get("/version"))
	for _, f := range []string{"major", "minor", "gitVersion", "gitCommit", "goVersion", "platform", "compiler"} {
		if v.textAt(f) == "" {
			t.Errorf("/version has no %s: %s", f, v.raw)
		}
	}
	if paths := c.mustAnswer(t, 200, get("/")); !strings.Contains(string(paths.raw), `"/apis/apps/v1"`) {
		t.Errorf("/: %s", paths.raw)
	}
	for _, path := range []string{"/nowhere", "/apis/nowhere.example.com", "/apis/nowhere.example.com/v1/things"} {
		if a := c.do(t, get("%s", path)); a.code != 404 || string(a.raw) != "404 page not found\n" ||
			a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %d %s %s", path, a.code, a.header.Get("Content-Type"), a.raw)
		}
	}
	for _, path := range []string{"/api/v2", "/version/x", "/apis/apps/v7", "/apis/apps/v7/things"} {
		c.mustRefuse(t, get("%s", path), 404, "NotFound", "the server could not find the requested resource")
	}
	c.mustRefuse(t, get("/api/v1/things"), 404, "NotFound", "the server could not find the requested resource")
}
