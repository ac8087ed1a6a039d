package apiserver_test

import (
	"testing"

	"clusterctl/daemons/store/memory"
)

// TestResourceVersionsOfNewObjects creates objects whose metadata has a resourceVersion.
// Proves S12.
func TestResourceVersionsOfNewObjects(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	cfg := startConfig(t, s, nil)
	const maps = "/api/v1/namespaces/default/configmaps"
	if code, text := sendRequest(t, cfg, "POST", maps, `{"metadata":{"name":"there"}}`); code != 201 {
		t.Fatal(code, text)
	}
	for name, c := range map[string]struct {
		query, body string
		code        int
	}{
		"a version":                          {"", `{"metadata":{"name":"a","resourceVersion":"7"}}`, 400},
		"a version, of a name that is taken": {"", `{"metadata":{"name":"there","resourceVersion":"7"}}`, 400},
		"a version, of an invalid object": {"",
			`{"metadata":{"name":"a","resourceVersion":"7"},"data":{"a b":"c"}}`, 422},
		"a version, on a dry run": {"?dryRun=All", `{"metadata":{"name":"a","resourceVersion":"7"}}`,
			201},
		"a version, on a dry run, name taken": {"?dryRun=All", `{"metadata":{"name":"there","resourceVersion":"7"}}`,
			409},
		"zero":                                {"", `{"metadata":{"name":"zero","resourceVersion":"0"}}`, 201},
		"a generated name, with a version":    {"", `{"metadata":{"generateName":"a-","resourceVersion":"7"}}`, 400},
		"no version, of a name that is taken": {"", `{"metadata":{"name":"there"}}`, 409},
		"a version, of an invalid name, dry run": {"?dryRun=All", `{"metadata":{"name":"A","resourceVersion":"7"}}`,
			422},
	} {
		if code, text := sendRequest(t, cfg, "POST", maps+c.query, c.body); code != c.code {
			t.Errorf("%s: %d %s, want %d", name, code, text, c.code)
		}
	}
	if code, text := sendRequest(t, cfg, "GET", maps+"/a", ""); code != 404 {
		t.Errorf("an object was stored: %d %s", code, text)
	}
}
