package apiserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/store"
	"clusterctl/tests/tools/amount"
)

// An object with many characters that HTML escapes may be as large as any other.
// Proves S11.
func TestMarkupDoesNotCountAsEscaped(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		createDefinition(t, cfg, crontabs, cronTabPath)
		page := strings.Repeat("<a>&</a>", amount.Scaled(120<<10, 40<<10))
		for _, c := range []struct{ path, body, in string }{
			{"/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"m"},"data":{"page":"` + page + `"}}`, "data.page"},
			{"/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"n","annotations":{"page":"` + page[:250<<10] + `"}}}`, "metadata.annotations.page"},
			{"/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"page":"` + page + `"}}`, ""},
			{cronTabPath, strings.Replace(cronTabObject("c", ""), `"spec":{`, `"spec":{"image":"`+page+`",`, 1), "spec.image"},
			{cronTabPath, strings.Replace(cronTabObject("d", ""), `"spec":{`, `"data":{"<&>":"`+page+`"},"spec":{`, 1), "data.<&>"},
		} {
			code, text := sendRequest(t, cfg, "POST", c.path, c.body)
			if code != 201 {
				t.Errorf("%.60s: %d %.300s", c.body, code, text)
				continue
			}
			var got unstructured.Unstructured
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			code, text = sendRequest(t, cfg, "GET", c.path+"/"+got.GetName(), "", "Accept", "application/yaml")
			if c.in == "" {
				continue
			}
			current, _, err := unstructured.NestedString(got.Object, strings.Split(c.in, ".")...)
			if err != nil || !strings.HasPrefix(page, current) || len(current) < 250<<10 {
				t.Errorf("%s is %d bytes, %v", c.in, len(current), err)
			}
			if code != 200 || !strings.Contains(text, current) {
				t.Errorf("as YAML: %d %.300s", code, text)
			}
		}
	})
}

// The value of a "test" operation is compared as Go clients encode it.
// Proves S11.
func TestPatchTestsCompareUnescapedMarkup(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, crontabs, cronTabPath)
	const maps = "/api/v1/namespaces/default/configmaps"
	for path, body := range map[string]string{maps: `{"metadata":{"name":"m"},"data":{"a":"<x>&"}}`, cronTabPath: strings.Replace(cronTabObject("m", ""), `"spec":{`, `"spec":{"image":"<x>&",`, 1)} {
		if code, text := sendRequest(t, cfg, "POST", path, body); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	for path, at := range map[string]string{maps + "/m": "/data/a", cronTabPath + "/m": "/spec/image"} {
		patch, err := json.Marshal(
			[]map[string]string{
				{"op": "test", "path": at, "value": "<x>&"},
				{"op": "replace", "path": at, "value": "<y>"},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		if code, text := sendRequest(t, cfg, "PATCH", path, string(patch), "Content-Type",
			"application/json-patch+json"); code != 200 ||
			!strings.Contains(text, `"<y>"`) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}

// Markup that an older version stored escaped has the same meaning. A manager that does not change it does not own it.
// Proves S11.
func TestEscapedStoredMarkupIsEqual(t *testing.T) {
	s := stores["memory"](t)
	cfg := startConfig(t, s, nil)
	for name, a := range map[string]string{"old": `\u003c`, "new": "x"} {
		stored := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `","namespace":"default","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"manager":"o",` +
			`"operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{}}}}]},"data":{"a":"` + a + `","b":"1"}}`
		if _, err := s.Commit(timeoutContext(t),
			store.Txn{Puts: []store.Put{{Key: "/registry/configmaps/default/" + name,
				Value: []byte(stored)}}}); err != nil {
			t.Fatal(err)
		}
	}
	merge := func(name, patch string) (version, owned string) {
		code, text := sendRequest(t, cfg, "PATCH", "/api/v1/namespaces/default/configmaps/"+name+"?fieldManager=m",
			patch, "Content-Type", "application/merge-patch+json")
		var got metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(text), &got); code != 200 || err != nil || !strings.Contains(text, `"a":"<"`) {
			t.Fatalf("%s: %d %s", patch, code, text)
		}
		for _, f := range got.ManagedFields {
			if f.Manager == "m" {
				owned = f.FieldsV1.String()
			}
		}
		return got.ResourceVersion, owned
	}
	version, owned := merge("old", `{"data":{"b":"2"}}`)
	if want := `{"f:data":{"f:b":{}}}`; owned != want {
		t.Errorf("who changed b owns %s", owned)
	}
	if again, _ := merge("old", `{"data":{"a":"<"}}`); again != version {
		t.Error("what says the same is written again")
	}
	if _, owned := merge("new", `{"data":{"a":"<","b":"2"}}`); owned != `{"f:data":{"f:a":{},"f:b":{}}}` {
		t.Errorf("who changed both owns %s", owned)
	}
}
