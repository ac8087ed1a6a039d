package apiserver_test

import (
	"strings"
	"testing"
)

// Users of a deprecated version get a warning, with the definition's text or upstream's.
// Proves S12.
func TestDeprecatedVersionsWarn(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	const version = `{"name":"%","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},"subresources":{"status":{}}`
	const base = "/apis/old.example.com/"
	createDefinition(
		t,
		cfg,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.old.example.com"},"spec":{
		"group":"old.example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[`+
			strings.Replace(strings.Replace(version, "%", "v1", 1), `"storage":false`, `"storage":true`, 1)+`},`+
			strings.Replace(version, "%", "v1beta1", 1)+`,"deprecated":true},`+
			strings.Replace(
				version,
				"%",
				"v1alpha1",
				1,
			)+`,"deprecated":true,"deprecationWarning":"old.example.com/v1alpha1 Thing goes in 3.0; see https://example.com"}]}}`,
		base+"v1/things",
	)
	const path = "/namespaces/default/things"
	if code, text := sendRequest(t, cfg, "POST", base+"v1"+path, `{"apiVersion":"old.example.com/v1","kind":"Thing","metadata":{"name":"a"}}`); code != 201 ||
		strings.Contains(text, "299 - ") {
		t.Fatalf("%d %s", code, text)
	}
	for version, want := range map[string]string{
		"v1": "", "v1beta1": `299 - "old.example.com/v1beta1 Thing is deprecated"`,
		"v1alpha1": `299 - "old.example.com/v1alpha1 Thing goes in 3.0; see https://example.com"`,
	} {
		object := `{"apiVersion":"old.example.com/` + version + `","kind":"Thing","metadata":{"name":"` + version + `"}}`
		for _, c := range []struct{ method, path, body string }{
			{"GET", "/namespaces/default/things/a", ""}, {"GET", "/things", ""},
			{"GET", path + "?watch=1&timeoutSeconds=1", ""},
			{"POST", path, object}, {"GET", path + "/a/status", ""}, {"DELETE", path + "/" + version, ""},
		} {
			code, text := sendRequest(t, cfg, c.method, base+version+c.path, c.body)
			if code >= 300 || want != "" && strings.Count(text, want) != 1 ||
				want == "" && strings.Contains(text, "299 - ") {
				t.Errorf("%s %s %s: %d %s", version, c.method, c.path, code, text)
			}
		}
	}
}
