package apiserver_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const parcels = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"parcels.post.example.com"},"spec":{
 "group":"post.example.com","scope":"Namespaced","names":{"plural":"parcels","kind":"Parcel"},"versions":[
 {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","description":"A parcel.","properties":{
  "spec":{"type":"object","properties":{
   "name":{"type":"string"},
   "note":{"type":"string","nullable":true},
   "size":{"type":"string","default":"S"},
   "either":{"type":"integer","oneOf":[{"minimum":1},{"maximum":-1}]},
   "inside":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"x":{"type":"string"}}},
   "any":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}}}},
 {"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// The published schemas of a definition are what kubectl explain and kubectl's validation need. They have upstream's
// descriptions of the common fields, embedded objects, and in version 2 only features that its readers support.
// Proves S12.
func TestDefinitionSchemasArePublished(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, parcels, "/apis/post.example.com/v1/parcels")
	type schema = map[string]any
	read := func(path string, into any) {
		t.Helper()
		code, text := sendRequest(t, cfg, "GET", path, "")
		if err := json.Unmarshal([]byte(text), into); err != nil || code != 200 {
			t.Fatal(path, code, err)
		}
	}
	var v2 struct{ Definitions map[string]schema }
	var first, second struct {
		Components struct{ Schemas map[string]schema }
	}
	read("/openapi/v2", &v2)
	read("/openapi/v3/apis/post.example.com/v1", &first)
	read("/openapi/v3/apis/post.example.com/v2", &second)
	at := func(s schema, path ...string) any {
		var v any = s
		for _, name := range path {
			m, _ := v.(map[string]any)
			v = m[name]
		}
		return v
	}
	one, open := first.Components.Schemas["com.example.post.v1.Parcel"],
		second.Components.Schemas["com.example.post.v2.Parcel"]
	old, oldOpen := v2.Definitions["com.example.post.v1.Parcel"], v2.Definitions["com.example.post.v2.Parcel"]
	for what, c := range map[string]struct{ got, want any }{
		"its description": {one["description"], "A parcel."},
		"its kind": {at(one, "x-kubernetes-group-version-kind"),
			[]any{map[string]any{"group": "post.example.com", "version": "v1", "kind": "Parcel"}}},
		"a null":                      {at(one, "properties", "spec", "properties", "note", "nullable"), true},
		"a null in version 2":         {at(old, "properties", "spec", "properties", "note"), map[string]any{}},
		"an alternative in version 2": {at(old, "properties", "spec", "properties", "either", "oneOf"), nil},
		"an object within, required": {at(one, "properties", "spec", "properties", "inside", "required"),
			[]any{"kind", "apiVersion"}},
		"an object within, its own": {at(one, "properties", "spec", "properties", "inside", "properties", "x",
			"type"), "string"},
		"an open one within, in version 2": {at(old, "properties", "spec", "properties", "any", "properties"), nil},
		"what takes everything, version 2": {len(oldOpen), 2}, // type and kind only
		"what takes everything":            {open["x-kubernetes-preserve-unknown-fields"], true},
		"its list": {first.Components.Schemas["com.example.post.v1.ParcelList"]["description"],
			"ParcelList is a list of Parcel"},
	} {
		got, _ := json.Marshal(c.got)
		want, _ := json.Marshal(c.want)
		if string(got) != string(want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	for what, of := range map[string]any{
		"the object": at(one, "properties"), "in version 2": at(old, "properties"),
		"its list":              at(first.Components.Schemas["com.example.post.v1.ParcelList"], "properties"),
		"what takes everything": at(open, "properties"),
		"within it":             at(one, "properties", "spec", "properties", "inside", "properties"),
		"an open one within":    at(one, "properties", "spec", "properties", "any", "properties"),
	} {
		properties, _ := of.(map[string]any)
		for name, want := range map[string]string{"kind": "Kind is a string " +
			"value", "apiVersion": "APIVersion defines", "metadata": "Standard "} {
			if text, _ := at(properties, name, "description").(string); !strings.HasPrefix(text, want) ||
				!strings.Contains(text, "More info: https://git.k8s.io") {
				t.Errorf("%s: %s: %q", what, name, text)
			}
		}
	}
}

// Owner references are owned as wholes, one by one. A null that the schema does not allow is treated as absent.
// Proves S12.
func TestCustomResourceMetadataMergesLikeBuiltInKinds(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	const path = "/apis/post.example.com/v1/namespaces/default/parcels/a"
	createDefinition(t, cfg, parcels, "/apis/post.example.com/v1/parcels")
	apply := func(manager, object string) (int, string) {
		return sendRequest(t, cfg, "PATCH", path+"?fieldManager="+manager, object, "Content-Type",
			"application/apply-patch+yaml")
	}
	const head = `{"apiVersion":"post.example.com/v1","kind":"Parcel","metadata":{"name":"a","finalizers":["example.com/%"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"%","uid":"%"}]}`
	for name, spec := range map[string]string{"x": `{"name":null,"note":null,"size":null}`, "y": `{}`} {
		code, text := apply(name, strings.ReplaceAll(head, "%", name)+`,"spec":`+spec+`}`)
		if code >= 300 {
			t.Fatalf("%d %s", code, text)
		}
		if name == "x" && !strings.Contains(text, `"spec":{"note":null,"size":"S"}`) {
			t.Errorf("nulls: %s", text)
		}
		for _, want := range []string{`"f:ownerReferences":{"k:{\"uid\":\"` + name + `\"}":{}}`, `"v:\"example.com/` + name + `\"":{}`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
	}
	var both struct {
		Metadata struct {
			Finalizers      []string
			OwnerReferences []struct{ UID string }
		}
	}
	if _, text := sendRequest(t, cfg, "GET", path, ""); json.Unmarshal([]byte(text), &both) != nil ||
		len(both.Metadata.OwnerReferences) != 2 ||
		!slices.Contains(both.Metadata.Finalizers, "example.com/x") {
		t.Errorf("%s", text)
	}
}
