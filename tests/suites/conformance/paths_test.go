package conformance

import (
	"net/http"
	"testing"

	"clusterctl/certs"
)

// The deprecated paths under /watch are served to users with the right to watch.
// Proves S11.
func TestLegacyWatchPathsAreServed(t *testing.T) {
	s := startServer(t, openStore(t))
	c := s.clientFor(t, certs.Admin())
	c.createNamespace(t, "w")
	one := func(labels object) object {
		return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "one", "labels": labels}}
	}
	c.mustAnswer(t, 201, post("/api/v1/namespaces/w/configmaps", one(object{"a": "b"})))
	c.mustAnswer(t, 201, post("/api/v1/namespaces/w/configmaps", object{"metadata": object{"name": "two"}}))
	c.mustAnswer(t, 201, post("/apis/networking.k8s.io/v1/ingressclasses",
		object{"metadata": object{"name": "one"}, "spec": object{"controller": "a.example.com/b"}}))

	for _, path := range []string{
		"/api/v1/watch/namespaces/w/configmaps/one",
		"/api/v1/watch/namespaces/w/configmaps/one?fieldSelector=metadata.name%3Done",
		"/api/v1/watch/namespaces/w/configmaps?labelSelector=a%3Db",
		"/api/v1/watch/configmaps?labelSelector=a",
		"/api/v1/watch/configmaps?fieldSelector=metadata.name%3Done,metadata.namespace%3Dw",
		"/apis/networking.k8s.io/v1/watch/ingressclasses",
		"/apis/networking.k8s.io/v1/watch/ingressclasses/one?watch=0",
	} {
		c.watch(t, get("%s", path)).mustBeEvent("ADDED", "one")
	}
	c.watch(t, get("/api/v1/watch/namespaces/w")).mustBeEvent("ADDED", "w")
	table := c.watch(t, get("/api/v1/watch/namespaces/w/configmaps/one").withAccept(tableType))
	if e := table.nextEvent(); valueAt(e, "object.kind") != any("Table") {
		t.Errorf("a watch of tables begins with %v", e)
	}
	changes := c.watch(t, get("/api/v1/watch/namespaces/w/configmaps/one"))
	changes.mustBeEvent("ADDED", "one")
	c.mustAnswer(t, 200, patch("/api/v1/namespaces/w/configmaps/two", "merge-patch+json",
		object{"data": object{"a": "b"}}))
	c.mustAnswer(t, 200, patch("/api/v1/namespaces/w/configmaps/one", "merge-patch+json",
		object{"data": object{"a": "b"}}))
	changes.mustBeEvent("MODIFIED", "one")

	c.mustRefuse(t, get("/api/v1/watch/namespaces/w/configmaps/one?fieldSelector=metadata.name%%3Dtwo"), 400,
		"BadRequest", "fieldSelector metadata.name doesn't match requested name")
	c.mustRefuse(t, get("/api/v1/watch/namespaces/w/configmaps/one?resourceVersionMatch=Exact"), 422, "Invalid",
		"resourceVersionMatch is forbidden unless resourceVersion is provided")
	for _, r := range []call{
		get("/api/v1/watch/configmaps/one"), get("/api/v1/watch/namespaces/w/pods/p/status"),
		get("/api/v1/watch/namespaces/w/pods/p/log"), get("/api/v1/watch/things"),
		get("/apis/authorization.k8s.io/v1/watch/selfsubjectaccessreviews"), get("/api/v1/watch/componentstatuses"),
		get("/apis/networking.k8s.io/v1/watch/namespaces/w/ingressclasses"),
	} {
		c.mustRefuse(t, r, 404, "NotFound", "the server could not find the requested resource")
	}
	if a := c.do(t, get("/api/v1/watch")); a.code != 500 ||
		string(
			a.raw,
		) != `Internal Server Error: "/api/v1/watch": failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch`+"\n" {
		t.Errorf("a watch of nothing: %d %s", a.code, a.raw)
	}
	c.mustRefuse(t, post("/api/v1/watch/namespaces/w/configmaps", one(nil)), 405, "MethodNotAllowed", notAllowed)
	c.mustRefuse(t, remove("/api/v1/watch/namespaces/w/configmaps/one", nil), 405, "MethodNotAllowed", notAllowed)

	checkRestrictedWatch(t, s, c)
}

// checkRestrictedWatch checks a user who may only watch the config map one.
func checkRestrictedWatch(t *testing.T, s *server, c *client) {
	c.mustAnswer(
		t,
		201,
		post(
			"/apis/rbac.authorization.k8s.io/v1/namespaces/w/roles",
			object{"metadata": object{"name": "see"}, "rules": []any{
				object{
					"apiGroups":     []any{""},
					"resources":     []any{"configmaps"},
					"resourceNames": []any{"one"},
					"verbs":         []any{"watch"},
				}}},
		),
	)
	c.mustAnswer(
		t,
		201,
		post("/apis/rbac.authorization.k8s.io/v1/namespaces/w/rolebindings", object{"metadata": object{"name": "see"},
			"subjects": []any{object{"kind": "User", "name": "seer", "apiGroup": "rbac.authorization.k8s.io"}},
			"roleRef":  object{"kind": "Role", "name": "see", "apiGroup": "rbac.authorization.k8s.io"}}),
	)
	c.waitForRoles(t, "w")
	seer := s.clientFor(t, certs.Request{CommonName: "seer"})
	seer.watch(t, get("/api/v1/watch/namespaces/w/configmaps/one")).mustBeEvent("ADDED", "one")
	seer.mustRefuse(
		t,
		get("/api/v1/watch/namespaces/w/configmaps/two"),
		403,
		"Forbidden",
		`configmaps "two" is forbidden: User "seer" cannot watch resource "configmaps" in API group "" in the namespace "w"`,
	)
	seer.mustRefuse(t, get("/api/v1/watch/namespaces/w/configmaps?fieldSelector=metadata.name%%3Done"), 403,
		"Forbidden",
		`configmaps is forbidden: User "seer" cannot watch resource "configmaps" in API group "" in the namespace "w"`)
	// In the query of a list path, a selector of one name is equivalent to the name.
	seer.watch(t, get(
		"/api/v1/namespaces/w/configmaps?watch=1&fieldSelector=metadata.name%%3Done,metadata.namespace%%3Dw")).
		mustBeEvent("ADDED", "one")
}

// A user with all rights in one namespace has no rights on namespaces, because these are in no namespace, whatever the
// path is.
// Proves S11.
func TestRightsInANamespaceDoNotCoverNamespaces(t *testing.T) {
	s := startServer(t, openStore(t))
	c := s.clientFor(t, certs.Admin())
	c.createNamespace(t, "own")
	c.createNamespace(t, "other")
	c.mustAnswer(
		t,
		201,
		post(
			"/apis/rbac.authorization.k8s.io/v1/namespaces/own/roles",
			object{"metadata": object{"name": "all"}, "rules": []any{
				object{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}}},
		),
	)
	c.mustAnswer(
		t,
		201,
		post("/apis/rbac.authorization.k8s.io/v1/namespaces/own/rolebindings", object{"metadata": object{"name": "all"},
			"subjects": []any{object{"kind": "User", "name": "owner", "apiGroup": "rbac.authorization.k8s.io"}},
			"roleRef":  object{"kind": "Role", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}}),
	)
	c.waitForRoles(t, "own")
	owner := s.clientFor(t, certs.Request{CommonName: "owner"})
	owner.mustAnswer(t, 200, get("/api/v1/namespaces/own"))
	const other = "/api/v1/namespaces/own/namespaces/other"
	for _, r := range []call{
		get("/api/v1/namespaces/own/namespaces"), get("/api/v1/namespaces/own/namespaces?watch=1"),
		get("/api/v1/watch/namespaces/own/namespaces"), get("/api/v1/watch/namespaces/own/namespaces/other"),
		get("/api/v1/namespaces/own/namespaces?fieldSelector=metadata.name%%3Dother"), get(other),
		get(other + "/status"), get("/api/v1/namespaces/own/namespaces/own"),
		post("/api/v1/namespaces/own/namespaces", object{"metadata": object{"name": "made"}}),
		put(other, object{"metadata": object{"name": "other"}}),
		put(other+"/finalize", object{"metadata": object{"name": "other"}}),
		patch(other, "merge-patch+json", object{"metadata": object{"labels": object{"a": "b"}}}),
		patch(other+"/status", "merge-patch+json", object{}),
		remove(other, nil), remove("/api/v1/namespaces/own/namespaces", nil), get("/api/v1/namespaces/own/nodes"),
	} {
		owner.mustRefuse(t, r, 404, "NotFound", "the server could not find the requested resource")
		c.mustRefuse(t, r, 404, "NotFound", "the server could not find the requested resource")
	}
	owner.mustRefuse(
		t,
		get("/api/v1/namespaces/other"),
		403,
		"Forbidden",
		`namespaces "other" is forbidden: User "owner" cannot get resource "namespaces" in API group "" in the namespace "other"`,
	)
	if a := c.mustAnswer(t, 200, get("/api/v1/namespaces/other")); a.valueAt("metadata.labels.a") != nil ||
		a.valueAt("metadata.deletionTimestamp") != nil {
		t.Errorf("changed: %s", a.raw)
	}
}

const notAllowed = "the server does not allow this method on the requested resource"

// A path that does not support a method answers so, in the words of upstream's router. A path without any method is not
// found.
// Proves S11.
func TestUnsupportedMethodsAreNotAllowed(t *testing.T) {
	s := startServer(t, openStore(t))
	c := s.clientFor(t, certs.Admin())
	c.createNamespace(t, "m")
	plain := func(method, path string) call { return call{method: method, path: path} }
	for _, r := range []call{
		plain("POST", "/version"), plain("PUT", "/version/"), plain("DELETE", "/api"), plain("POST", "/api/v1"),
		plain("PATCH", "/apis/apps/v1"),
		plain("POST", "/openid/v1/jwks"), plain("OPTIONS", "/api/v1/pods"), plain("POST", "/api/v1/pods"),
		plain("POST", "/api/v1/namespaces/m/pods/p"), plain("PUT", "/api/v1/namespaces/m/pods"),
		plain("GET", "/api/v1/namespaces/m/pods/p/eviction"), plain("DELETE", "/api/v1/namespaces/m/pods/p/status"),
		plain("DELETE", "/api/v1/namespaces"),
		plain("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
		plain("DELETE", "/api/v1/componentstatuses/etcd-0"), plain("POST", "/api/v1/namespaces/m/finalize"),
	} {
		a := c.mustRefuse(t, r, 405, "MethodNotAllowed", notAllowed)
		details, ok := a.valueAt("details").(object)
		if !ok || len(details) > 0 || a.header.Get("Cache-Control") != "no-cache, private" ||
			a.header.Get("Allow") != "" {
			t.Errorf("%s %s: details %v, headers %v", r.method, r.path, a.valueAt("details"), a.header)
		}
	}
	for _, r := range []call{
		plain("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews"),
		plain("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/one"),
		plain("DELETE", "/api/v1/configmaps/one"), plain("POST", "/api/v2"), plain("GET", "/api/v1/namespaces/m/nodes"),
		plain("POST", "/api/v1/bindings"),
	} {
		c.mustRefuse(t, r, 404, "NotFound", "the server could not find the requested resource")
	}
	for path, code := range map[string]int{"/api/v1/namespaces/m/pods": 405, "/version": 405, "/api/v1": 405,
		"/healthz": 200, "/readyz": 200, "/metrics": 200} {
		if a := c.do(t, plain(http.MethodHead, path)); a.code != code {
			t.Errorf("HEAD %s: %d, want %d", path, a.code, code)
		}
	}
	if a := c.do(t, plain("POST", "/healthz")); a.code != 200 || string(a.raw) != "ok" {
		t.Errorf("POST /healthz: %d %s", a.code, a.raw)
	}
	// A user without rights on a path gets no information about it.
	s.clientWith(t).
		mustRefuse(t, plain("POST", "/version"), 403, "Forbidden", `forbidden: User "system:anonymous" cannot post path "/version"`)
	s.clientFor(t, certs.Request{CommonName: "nobody"}).
		mustRefuse(t, get("/nowhere"), 403, "Forbidden", `User "nobody" cannot get path "/nowhere"`)
	if a := s.clientWith(t).do(t, plain("POST", "/livez")); a.code != 200 {
		t.Errorf("POST /livez without credentials: %d %s", a.code, a.raw)
	}

	checkCustomPaths(t, c)
}

// checkCustomPaths checks the methods on paths of a custom resource.
func checkCustomPaths(t *testing.T, c *client) {
	definition := object{"metadata": object{"name": "things.m.example.com"}, "spec": object{
		"group": "m.example.com", "scope": "Namespaced", "names": object{"plural": "things", "kind": "Thing"},
		"versions": []any{
			object{
				"name":    "v1",
				"served":  true,
				"storage": true,
				"schema": object{
					"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
			},
		}}}
	c.mustAnswer(t, 201, post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition))
	const things = "/apis/m.example.com/v1/namespaces/m/things"
	eventually(t, func() error {
		if a := c.do(t, get("%s", things)); a.code != 200 {
			return errStillExists
		}
		return nil
	})
	c.mustAnswer(t, 201, post(things,
		object{"apiVersion": "m.example.com/v1", "kind": "Thing", "metadata": object{"name": "one"}}))
	c.watch(t, get("/apis/m.example.com/v1/watch/namespaces/m/things/one")).mustBeEvent("ADDED", "one")
	c.mustRefuse(t, call{method: "PUT", path: things}, 400, "BadRequest", "name must be provided")
	for _, r := range []call{{method: "POST", path: "/apis/m.example.com/v1/things"},
		{method: "GET", path: "/apis/m.example.com/v1/nothings"},
		{method: "GET", path: "/apis/m.example.com/v7/things"}} {
		if a := c.do(t, r); a.code != 404 || string(a.raw) != "404 page not found\n" {
			t.Errorf("%s %s: %d %s", r.method, r.path, a.code, a.raw)
		}
	}
	// The name in a path for creating objects is ignored.
	c.mustAnswer(t, 201, post(things+"/other",
		object{"apiVersion": "m.example.com/v1", "kind": "Thing", "metadata": object{"name": "two"}}))
	c.mustRefuse(t, post(things+"/three",
		object{"apiVersion": "m.example.com/v1", "kind": "Thing", "metadata": object{"name": "two"}}), 409,
		"AlreadyExists", `things.m.example.com "two" already exists`)
	c.mustRefuse(t, call{method: "OPTIONS", path: things}, 405, "MethodNotAllowed",
		"is not supported on resources of kind \"things.m.example.com\"")
	if a := c.do(t, call{method: http.MethodHead, path: things + "/one"}); a.code != 200 {
		t.Errorf("HEAD of a custom resource: %d", a.code)
	}
}

// An update with the UID of a deleted object does not create it again. A user without the right to create cannot create
// objects with an update or apply.
// Proves S11.
func TestUpdatesCreateMissingObjectsOnlyIfAuthorized(t *testing.T) {
	s := startServer(t, openStore(t))
	c := s.clientFor(t, certs.Admin())
	c.createNamespace(t, "u")
	const unknownUID = "00000000-0000-0000-0000-000000000000"
	lease := func(uid, version string) object {
		return object{
			"apiVersion": "coordination.k8s.io/v1",
			"kind":       "Lease",
			"metadata":   object{"name": "l", "uid": uid, "resourceVersion": version},
		}
	}
	const leases, maps = "/apis/coordination.k8s.io/v1/namespaces/u/leases", "/api/v1/namespaces/u/configmaps"
	a := c.mustRefuse(t, put(leases+"/l", lease(unknownUID, "7")), 409, "Conflict",
		`Operation cannot be fulfilled on leases.coordination.k8s.io "l": StorageError: invalid object, Code: 4, `+
			"Key: /registry/leases/u/l, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "+
			"precondition: "+unknownUID+", UID in object meta: ")
	if a.textAt("details.name") != "l" || a.textAt("details.group") != "coordination.k8s.io" ||
		a.textAt("details.kind") != "leases" {
		t.Errorf("details %v", a.valueAt("details"))
	}
	c.mustAnswer(t, 201, put(leases+"/l", lease("", "7")))
	missing := object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "c", "uid": unknownUID}}
	c.mustRefuse(t, put(maps+"/c", missing), 404, "NotFound", `configmaps "c" not found`)
	c.mustRefuse(t, patch(maps+"/c?fieldManager=m", "apply-patch+yaml", missing), 409, "Conflict",
		"uid mismatch: the provided object specified uid "+unknownUID+", and no existing object was found")

	allowChanges(t, c)
	changer := s.clientFor(t, certs.Request{CommonName: "changer"})
	changer.mustAnswer(
		t,
		200,
		patch(
			leases+"/l?fieldManager=m",
			"apply-patch+yaml",
			object{
				"apiVersion": "coordination.k8s.io/v1",
				"kind":       "Lease",
				"metadata":   object{"name": "l", "labels": object{"a": "b"}},
			},
		),
	)
	changer.mustRefuse(
		t,
		put(leases+"/new", withValue(lease("", ""), "metadata.name", "new")),
		403,
		"Forbidden",
		`leases.coordination.k8s.io "new" is forbidden: User "changer" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "u"`,
	)
	changer.mustRefuse(
		t,
		patch(maps+"/new?fieldManager=m", "apply-patch+yaml",
			object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "new"}}),
		403,
		"Forbidden",
		`configmaps "new" is forbidden: User "changer" cannot create resource "configmaps" in API group "" in the namespace "u"`,
	)
	c.mustRefuse(t, get("%s/new", maps), 404, "NotFound", "")
}

// allowChanges allows the user changer to update and patch, and not to create.
func allowChanges(t *testing.T, c *client) {
	c.mustAnswer(
		t,
		201,
		post(
			"/apis/rbac.authorization.k8s.io/v1/namespaces/u/roles",
			object{"metadata": object{"name": "change"}, "rules": []any{
				object{
					"apiGroups": []any{"", "coordination.k8s.io"},
					"resources": []any{"configmaps", "leases"},
					"verbs":     []any{"update", "patch"},
				}}},
		),
	)
	c.mustAnswer(
		t,
		201,
		post(
			"/apis/rbac.authorization.k8s.io/v1/namespaces/u/rolebindings",
			object{"metadata": object{"name": "change"},
				"subjects": []any{object{"kind": "User", "name": "changer", "apiGroup": "rbac.authorization.k8s.io"}},
				"roleRef":  object{"kind": "Role", "name": "change", "apiGroup": "rbac.authorization.k8s.io"}},
		),
	)
	c.waitForRoles(t, "u")
}

// waitForRoles returns when the roles and role bindings that were written in a namespace are in effect.
func (c *client) waitForRoles(t *testing.T, namespace string) {
	t.Helper()
	for _, list := range []string{"roles", "rolebindings"} {
		// A list is not older than earlier writes, and the authorizer reads the cache that answers it.
		c.mustAnswer(t, 200, get("/apis/rbac.authorization.k8s.io/v1/namespaces/%s/%s", namespace, list))
	}
}
