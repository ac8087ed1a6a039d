package conformance

import (
	"strings"
	"testing"
)

// A write with a questionable value, and a request for a deprecated API, succeed with a warning.
// Proves S11.
func TestWarningsAreReturned(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "doubts")
	pod := object{
		"nodeSelector":     object{"beta.kubernetes.io/os": "linux"},
		"imagePullSecrets": []any{object{"name": ""}},
		"containers": []any{object{
			"name": "c", "image": "i",
			"env":       []any{object{"name": "A", "value": "1"}, object{"name": "A", "value": "2"}},
			"ports":     []any{object{"containerPort": 80}, object{"containerPort": 80, "name": "again"}},
			"resources": object{"limits": object{"memory": "1500m"}},
		}},
	}
	requireWarning := func(a answer, path string) {
		t.Helper()
		warnings := strings.Join(a.header.Values("Warning"), "\n")
		for _, want := range []string{
			`nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead`,
			`imagePullSecrets[0].name: invalid empty name \"\"`,
			`containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply`,
			`containers[0].ports[1]: duplicate port definition with ` + path + `containers[0].ports[0]`,
			`containers[0].resources.limits[memory]: fractional byte value \"1500m\" is invalid, must be an integer`,
		} {
			if !strings.Contains(warnings, `299 - "`+path+want+`"`) {
				t.Errorf("warnings\n%s\nwant %s", warnings, path+want)
			}
		}
	}
	meta := object{"name": "p", "labels": object{"a": "b"}}
	requireWarning(c.mustAnswer(t, 201, post("/api/v1/namespaces/doubts/pods", object{"metadata": meta, "spec": pod})),
		"spec.")
	set := object{"metadata": object{"name": "s"}, "spec": object{
		"selector": object{
			"matchLabels": object{"a": "b"},
		}, "template": object{"metadata": object{"labels": object{"a": "b"}}, "spec": pod},
	}}
	requireWarning(c.mustAnswer(t, 201, post("/apis/apps/v1/namespaces/doubts/deployments", set)),
		"spec.template.spec.")
	status := patch("/api/v1/namespaces/doubts/pods/p/status", "merge-patch+json",
		object{"status": object{"message": "m"}})
	if a := c.mustAnswer(t, 200, status); len(a.header.Values("Warning")) > 0 {
		t.Errorf("who writes the status did not write the rest: %v", a.header.Values("Warning"))
	}
	for path, want := range map[string]string{
		"/api/v1/endpoints":         "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		"/api/v1/componentstatuses": "v1 ComponentStatus is deprecated in v1.19+",
	} {
		if a := c.mustAnswer(t, 200, get("%s", path)); a.header.Get("Warning") != `299 - "`+want+`"` {
			t.Errorf("%s: %v", path, a.header.Values("Warning"))
		}
	}
}

// Fields that the server drops from a new object have no manager.
// Proves S11.
func TestDroppedFieldsAreNotManaged(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "dropped")
	a := c.mustAnswer(t, 201, post("/api/v1/namespaces/dropped/configmaps", object{"metadata": object{
		"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 9,
	}}))
	if a.valueAt("metadata.deletionTimestamp") != nil || strings.Contains(string(a.raw), "f:deletion") {
		t.Errorf("%s", a.raw)
	}
}
