package conformance

import (
	"bytes"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Aggregated discovery has the content of the separate documents.
// Proves S11.
func TestDiscoveryIsAggregated(t *testing.T) {
	c := sharedClient(t)
	tells := map[string]bool{}
	for _, path := range []string{"/api", "/apis"} {
		a := c.mustAnswer(t, 200, get("%s", path).withAccept(aggregatedType+",application/json"))
		if a.textAt("kind") != "APIGroupDiscoveryList" || a.textAt("apiVersion") != "apidiscovery.k8s.io/v2" ||
			a.header.Get("Content-Type") != aggregatedType {
			t.Fatalf("%s: %q %.200s", path, a.header.Get("Content-Type"), a.raw)
		}
		tag := a.header.Get("ETag")
		if kept := a.header.Get("Cache-Control"); kept != "public" {
			t.Errorf("%s may be kept: %q", path, kept)
		}
		again := get("%s", path).withAccept(aggregatedType)
		again.header = map[string][]string{"If-None-Match": {tag}}
		if b := c.do(t, again); tag == "" || b.code != 304 {
			t.Errorf("%s: asked again with its tag %q: %d", path, tag, b.code)
		}
		for _, g := range a.itemList() {
			group, _ := valueAt(g, "metadata.name").(string)
			versions, _ := valueAt(g, "versions").([]any)
			for _, v := range versions {
				version, _ := valueAt(v, "version").(string)
				resources, _ := valueAt(v, "resources").([]any)
				for _, r := range resources {
					name, _ := valueAt(r, "resource").(string)
					scope, _ := valueAt(r, "scope").(string)
					kind, _ := valueAt(r, "responseKind.kind").(string)
					tells[strings.TrimPrefix(group+"/"+version, "/")+"/"+kind+" "+name+" "+scope] = true
				}
			}
		}
		if plain := c.mustAnswer(t, 200, get("%s", path)); plain.textAt("kind") == "APIGroupDiscoveryList" {
			t.Errorf("%s: one document, without a request for it", path)
		}
	}
	for _, s := range readSamples(t) {
		scope := "Cluster"
		if s.Namespaced {
			scope = "Namespaced"
		}
		if want := s.String() + " " + s.Resource + " " + scope; !tells[want] && !unservedKinds[s.String()] {
			t.Errorf("it does not tell %s", want)
		}
	}
}

// The schema of every kind is published, at an address that changes with it.
// Proves S11.
func TestOpenAPIDescribesEveryKind(t *testing.T) {
	c := sharedClient(t)
	index := c.mustAnswer(t, 200, get("/openapi/v3"))
	paths, _ := index.valueAt("paths").(object)
	described := map[string]bool{}
	for name, entry := range paths {
		address, _ := valueAt(entry, "serverRelativeURL").(string)
		if a := c.do(t, get("/openapi/v3/%s?hash=0", name)); a.code != 200 ||
			string(a.raw) != string(c.mustAnswer(t, 200, get("%s", address)).raw) {
			t.Errorf("an address with another hash leads to the one that there is: %d", a.code)
		}
		if !strings.HasPrefix(address, "/openapi/v3/"+name+"?hash=") {
			t.Errorf("%s is at %q", name, address)
		}
		a := c.mustAnswer(t, 200, get("%s", address))
		if a.textAt("openapi") == "" || !strings.Contains(a.header.Get("Cache-Control"), "immutable") ||
			a.header.Get("ETag") == "" {
			t.Errorf("%s: %s, cached %q, tag %q", name, a.textAt("openapi"), a.header.Get("Cache-Control"),
				a.header.Get("ETag"))
		}
		again := get("/openapi/v3/%s", name)
		again.header = map[string][]string{"If-None-Match": {a.header.Get("ETag")}}
		if b := c.do(t, again); b.code != 304 {
			t.Errorf("%s asked again with its tag: %d", name, b.code)
		}
		schemas, _ := a.valueAt("components.schemas").(object)
		for _, s := range schemas {
			kinds, _ := valueAt(s, "x-kubernetes-group-version-kind").([]any)
			for _, k := range kinds {
				group, _ := valueAt(k, "group").(string)
				version, _ := valueAt(k, "version").(string)
				kind, _ := valueAt(k, "kind").(string)
				if properties, _ := valueAt(s, "properties").(object); len(properties) > 0 {
					described[strings.TrimPrefix(group+"/"+version, "/")+"/"+kind] = true
				}
			}
		}
	}
	for _, s := range readSamples(t) {
		if !described[s.String()] && !unservedKinds[s.String()] {
			t.Errorf("%s has no schema", s)
		}
	}
	if a := c.do(t, get("/openapi/v3/apis/nowhere/v1")); a.code != 404 {
		t.Errorf("a group that is not there: %d", a.code)
	}
	v2 := c.mustAnswer(t, 200, get("/openapi/v2"))
	if v2.textAt("swagger") != "2.0" || v2.header.Get("ETag") == "" {
		t.Errorf("version 2: %.100s", v2.raw)
	}
	again := get("/openapi/v2")
	again.header = map[string][]string{"If-None-Match": {v2.header.Get("ETag")}}
	if b := c.do(t, again); b.code != 304 {
		t.Errorf("version 2 asked again with its tag: %d", b.code)
	}
	packed := get("/openapi/v2")
	packed.header = map[string][]string{"Accept-Encoding": {"gzip"}}
	if b := c.do(t, packed); b.header.Get("Content-Encoding") != "gzip" ||
		!bytes.HasPrefix(b.raw, []byte{0x1f, 0x8b}) ||
		4*len(b.raw) > len(v2.raw) {
		t.Errorf("version 2 for who takes it compressed: %d bytes of %d, %v", len(b.raw), len(v2.raw), b.header)
	}
	binary := c.mustAnswer(t, 200,
		get("/openapi/v2").withAccept("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"))
	var document openapi_v2.Document
	if err := proto.Unmarshal(binary.raw, &document); err != nil || document.Swagger != "2.0" ||
		len(document.Paths.GetPath()) == 0 {
		t.Errorf("version 2 in protobuf is of version %q with %d paths: %v", document.Swagger,
			len(document.Paths.GetPath()), err)
	}
}
