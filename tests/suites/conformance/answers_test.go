package conformance

import (
	"net/http"
	"strings"
	"testing"
)

// An answer contains the id of its request, the version contains all its numbers, and paths are used as written.
// Proves S11.
func TestAnswersHaveTheTextsOfUpstream(t *testing.T) {
	c := sharedClient(t)
	for _, path := range []string{"/version", "/api/v1/namespaces/default", "/nowhere", "/api/v1/namespaces/none"} {
		a := c.do(t, get("%s", path))
		if id := a.header.Values("Audit-Id"); len(id) != 1 || len(id[0]) != 36 {
			t.Errorf("%s: audit ids %v", path, id)
		}
		r := get("%s", path)
		r.header = http.Header{"Audit-Id": {"mine"}}
		if a := c.do(t, r); a.header.Get("Audit-Id") != "mine" {
			t.Errorf("%s: audit id %q, want the client's", path, a.header.Get("Audit-Id"))
		}
	}
	v := c.mustAnswer(t, 200, get("/version"))
	for field, want := range map[string]string{"major": "1", "minor": "37", "emulationMajor": "1",
		"emulationMinor": "37", "minCompatibilityMajor": "1", "minCompatibilityMinor": "36"} {
		if v.textAt(field) != want {
			t.Errorf("version: %s is %q, want %s", field, v.textAt(field), want)
		}
	}
	for _, path := range []string{"//api", "//apis", "//api/v1/namespaces", "//version"} {
		if a := c.mustAnswer(t, 404, get("%s", path)); strings.TrimSpace(string(a.raw)) != "404 page not found" {
			t.Errorf("%s: %s", path, a.raw)
		}
	}
	c.mustAnswer(t, 404, get("/api/v1//namespaces"))
	c.mustAnswer(t, 404, get("/api//v1"))
	review := post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		object{"spec": object{"resourceAttributes": object{"verb": "get", "resource": "pods"}}})
	c.mustRefuse(t, review.withAccept("application/json;as=Table;v=v1;g=meta.k8s.io"), 406, "NotAcceptable",
		"only the following media types are accepted: application/json")
	c.mustAnswer(t, 201, review.withAccept("application/json;as=Table;v=v1;g=meta.k8s.io, application/json"))
	r := c.mustAnswer(t, 200, get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes"))
	if r.textAt("status.conditions.0.type") != "Ready" || r.textAt("status.conditions.0.status") != "True" ||
		r.textAt("metadata.finalizers.0") != "networking.k8s.io/service-cidr-finalizer" ||
		r.textAt("spec.cidrs.0") == "" {
		t.Errorf("the range of services: %s", r.raw)
	}
}

// Each field manager owns the owner references that it sets. They are identified by their UIDs, even if kind and name
// are the same.
// Proves S11.
func TestOwnersAreAppliedByTheirUIDs(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "owned")
	const path = "/api/v1/namespaces/owned/configmaps/c"
	owner := func(uid string) object {
		return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "c", "ownerReferences": []any{
			object{"apiVersion": "v1", "kind": "Secret", "name": "o", "uid": uid},
		}}}
	}
	c.mustAnswer(t, 201, patch(path+"?fieldManager=one", "apply-patch+yaml", owner("a")))
	both := c.mustAnswer(t, 200, patch(path+"?fieldManager=two", "apply-patch+yaml", owner("b")))
	if list, _ := both.valueAt("metadata.ownerReferences").([]any); len(list) != 2 {
		t.Errorf("two managers' owners: %v", both.valueAt("metadata.ownerReferences"))
	}
	left := c.mustAnswer(t, 200, patch(path+"?fieldManager=one", "apply-patch+yaml",
		object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "c"}}))
	if list, _ := left.valueAt("metadata.ownerReferences").([]any); len(list) != 1 ||
		left.textAt("metadata.ownerReferences.0.uid") != "b" {
		t.Errorf("one manager's owner: %v", left.valueAt("metadata.ownerReferences"))
	}
}
