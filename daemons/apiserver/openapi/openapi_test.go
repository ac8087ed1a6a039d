package openapi

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
)

func fetch(t *testing.T, h *Handler, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w
}

func TestDocumentsDescribeEveryKind(t *testing.T) {
	h := New(kinds.All())
	var v2 struct {
		Definitions map[string]struct {
			Description string
			Properties  map[string]map[string]any
			Kinds       []map[string]string `json:"x-kubernetes-group-version-kind"`
		}
	}
	if err := json.Unmarshal(fetch(t, h, "/openapi/v2", "application/json").Body.Bytes(), &v2); err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, d := range v2.Definitions {
		for _, k := range d.Kinds {
			described[k["group"]+"/"+k["version"]+"/"+k["kind"]] = true
		}
	}
	for _, k := range kinds.All() {
		if !described[k.GVK.Group+"/"+k.GVK.Version+"/"+k.GVK.Kind] {
			t.Errorf("%s is not described", k.GVK)
		}
	}
	spec := v2.Definitions["io.k8s.api.core.v1.PodSpec"]
	if spec.Description == "" || spec.Properties["containers"]["x-kubernetes-patch-merge-key"] != "name" {
		t.Errorf("PodSpec: %+v", spec.Properties["containers"])
	}
	port := v2.Definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
	if _, ok := v2.Definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]; !ok || port.Description == "x" {
		t.Error("no Quantity")
	}
	var doc openapi_v2.Document
	if err := proto.Unmarshal(fetch(t, h, "/openapi/v2",
		"application/com.github.proto-openapi.spec.v2@v1.0+protobuf").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(fetch(t, h, "/openapi/v3", "*/*").Body.Bytes(), &index); err != nil ||
		len(index.Paths) < 10 {
		t.Fatalf("%+v, %v", index, err)
	}
	for _, p := range index.Paths {
		fetch(t, h, p.ServerRelativeURL, "application/json")
	}
}

// declaredKind returns a kind like those of CustomResourceDefinitions.
func declaredKind(group, kind, field string) *kinds.Kind {
	gvk := schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	return &kinds.Kind{
		GVK: gvk, Resource: strings.ToLower(kind) + "s", Namespaced: true,
		NewList: func() runtime.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk.GroupVersion().WithKind(kind + "List"))
			return u
		},
		Untyped: &kinds.Untyped{Schema: func(bool) (map[string]any, error) {
			return map[string]any{
				"type":       "object",
				"properties": map[string]any{field: map[string]any{"type": "string"}},
			}, nil
		}},
	}
}

// A change of one definition makes only the documents again that it is in. They equal documents that are made from
// scratch.
func TestOnlyDocumentsOfChangedDefinitionsAreRemade(t *testing.T) {
	always := New(kinds.All())
	a, b, c := declaredKind("a.example.com", "A", "x"), declaredKind("b.example.com", "B", "x"), declaredKind(
		"a.example.com", "C", "x")
	changed := declaredKind("a.example.com", "A", "y")
	var before *Handler
	for i, list := range [][]*kinds.Kind{{a}, {a, b}, {a, b, c}, {changed, b, c}, {changed, c}} {
		made := 0
		for _, k := range list {
			schemaOf := k.Untyped.Schema
			k.Untyped.Schema = func(v3 bool) (map[string]any, error) {
				made++
				return schemaOf(v3)
			}
		}
		now := always.With(before, list)
		for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/a.example.com/v1",
			"/openapi/v3/apis/apps/v1"} {
			got := fetch(t, now, path, "application/json").Body.String()
			own := made
			if fresh := fetch(t, always.With(nil, list), path, "application/json").Body.String(); !sameJSON(t, got,
				fresh) {
				t.Errorf("%d: %s is\n%.300s\nand from nothing\n%.300s", i, path, got, fresh)
			}
			made = own
		}
		// One each for versions 2 and 3; all schemas of its group version are made together.
		if maximum := []int{2, 2, 3, 3, 2}[i]; made > maximum {
			t.Errorf("%d: %d schemas were made", i, made)
		}
		before = now
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
