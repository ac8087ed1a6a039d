package openapi

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"

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
	if err := proto.Unmarshal(fetch(t, h, "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(fetch(t, h, "/openapi/v3", "*/*").Body.Bytes(), &index); err != nil || len(index.Paths) < 10 {
		t.Fatalf("%+v, %v", index, err)
	}
	for _, p := range index.Paths {
		fetch(t, h, p.ServerRelativeURL, "application/json")
	}
}
