package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// crontabs is a definition that uses most features of definitions.
const crontabs = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"crontabs.stable.example.com"},
"spec":{"group":"stable.example.com","scope":"Namespaced",
 "names":{"plural":"crontabs","singular":"crontab","kind":"CronTab","shortNames":["ct"],"categories":["all"]},
 "versions":[{"name":"v1","served":true,"storage":true,
  "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":".status.labelSelector"}},
  "selectableFields":[{"jsonPath":".spec.color"}],
  "additionalPrinterColumns":[{"name":"Spec","type":"string","jsonPath":".spec.cronSpec"},{"name":"Replicas","type":"integer","jsonPath":".spec.replicas"},{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}],
  "schema":{"openAPIV3Schema":{"type":"object","description":"A table of jobs.","properties":{
   "data":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
   "spec":{"type":"object","required":["cronSpec"],
    "x-kubernetes-validations":[{"rule":"self.replicas <= self.maxReplicas","message":"replicas above maxReplicas"}],
    "properties":{
     "cronSpec":{"type":"string","pattern":"^(\\d+|\\*)(/\\d+)?(\\s+(\\d+|\\*)(/\\d+)?){4}$"},
     "image":{"type":"string","default":"busybox"},
     "color":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf","message":"color is immutable"}]},
     "port":{"x-kubernetes-int-or-string":true},
     "replicas":{"type":"integer","minimum":0,"default":1},
     "maxReplicas":{"type":"integer","default":10},
     "template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
     "jobs":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
      "items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"run":{"type":"string"}}}}}},
   "status":{"type":"object","properties":{"replicas":{"type":"integer"},"labelSelector":{"type":"string"}}}}}}},
  {"name":"v1beta1","served":true,"storage":false,
  "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
     "cronSpec":{"type":"string"},"replicas":{"type":"integer"},"image":{"type":"string"}}}}}}}]}}`

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	cronTabPath     = "/apis/stable.example.com/v1/namespaces/default/crontabs"
	betaPath        = "/apis/stable.example.com/v1beta1/namespaces/default/crontabs"
)

// sendRequest sends a request, and returns the status code and the body of the response.
func sendRequest(t testing.TB, cfg *rest.Config, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, cfg.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // it has been read to its end
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, strings.Join(answer.Header.Values("Warning"), "\n") + string(data)
}

// createDefinition creates a definition and waits until its kind is served.
func createDefinition(t testing.TB, cfg *rest.Config, definition, path string) {
	t.Helper()
	if code, text := sendRequest(t, cfg, "POST", definitionsPath, definition); code != 201 {
		t.Fatalf("define: %d %s", code, text)
	}
	waitUntil(t, func() error {
		if code, text := sendRequest(t, cfg, "GET", path, ""); code != 200 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}

// cronTabObject returns an object with the required fields and those of spec.
func cronTabObject(name, spec string) string {
	return fmt.Sprintf(
		`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":%q},"spec":{"cronSpec":"* * * * */5"%s}}`,
		name,
		spec,
	)
}

// Proves S12.
//
//style:long a table of requests in order, of which later ones need the objects of earlier ones
func TestCustomResourcesAreValidatedBySchema(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, crontabs, cronTabPath)
	const (
		merge = "application/merge-patch+json"
		js    = "application/json-patch+json"
		apply = "application/apply-patch+yaml"
	)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		want, lacks              []string
	}{
		{name: "defaults are filled in", method: "POST", path: cronTabPath, body: cronTabObject("a", `,"replicas":3,"color":"red"`), code: 201,
			want: []string{`"image":"busybox"`, `"maxReplicas":10`, `"generation":1`, `"manager":`}},
		{name: "unknown fields are pruned with a warning", method: "POST", path: cronTabPath, body: cronTabObject("b", `,"nope":1`), code: 201,
			want: []string{`unknown field \"spec.nope\"`}, lacks: []string{`"nope":1`}},
		{name: "strict refuses unknown fields", method: "POST", path: cronTabPath + "?fieldValidation=Strict", body: cronTabObject("c", `,"nope":1`), code: 400, want: []string{`unknown field`, `spec.nope`}},
		{name: "strict refuses what is said twice", method: "POST", path: cronTabPath + "?fieldValidation=Strict", body: cronTabObject("c", `,"image":"x","image":"y"`), code: 400, want: []string{`duplicate field`}},
		{name: "ignore says nothing", method: "POST", path: cronTabPath + "?fieldValidation=Ignore", body: cronTabObject("c", `,"nope":1`), code: 201, lacks: []string{"unknown field", "nope"}},
		{name: "preserved fields stay, before metadata in the alphabet too", method: "PATCH", path: cronTabPath + "/a", body: `{"data":{"any":{"thing":[1,2.5,null]}}}`, headers: []string{"Content-Type", merge}, code: 200, want: []string{`"data":{"any":{"thing":[1,2.5,null]}}`}},
		{name: "a pattern is checked", method: "POST", path: cronTabPath, body: strings.Replace(cronTabObject("d", ""), "* * * * */5", "x", 1), code: 422, want: []string{`spec.cronSpec in body should match`}},
		{name: "what is required is missed", method: "POST", path: cronTabPath, body: `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"d"},"spec":{}}`, code: 422, want: []string{`spec.cronSpec: Required value`}},
		{name: "rules are checked", method: "POST", path: cronTabPath, body: cronTabObject("d", `,"replicas":11`), code: 422, want: []string{"replicas above maxReplicas"}},
		{name: "rules see the past", method: "PATCH", path: cronTabPath + "/a", body: `{"spec":{"color":"blue"}}`, headers: []string{"Content-Type", merge}, code: 422, want: []string{"color is immutable"}},
		{name: "an integer or a string", method: "PATCH", path: cronTabPath + "/a", body: `{"spec":{"port":"http"}}`, headers: []string{"Content-Type", merge}, code: 200, want: []string{`"port":"http"`, `"generation":3`}},
		{name: "nothing else than those", method: "PATCH", path: cronTabPath + "/a", body: `{"spec":{"port":[1]}}`, headers: []string{"Content-Type", merge}, code: 422, want: []string{`spec.port`}},
		{name: "embedded resources have a kind", method: "PATCH", path: cronTabPath + "/a", body: `{"spec":{"template":{"spec":{}}}}`, headers: []string{"Content-Type", merge}, code: 422, want: []string{"spec.template.kind: Required value"}},
		{name: "keys of list maps are unique", method: "PATCH", path: cronTabPath + "/a", body: `{"spec":{"jobs":[{"name":"x"},{"name":"x"}]}}`, headers: []string{"Content-Type", merge}, code: 422, want: []string{"Duplicate value"}},
		{name: "a JSON patch", method: "PATCH", path: cronTabPath + "/a", body: `[{"op":"replace","path":"/spec/image","value":"nginx"}]`, headers: []string{"Content-Type", js}, code: 200, want: []string{`"image":"nginx"`}},
		{name: "no strategic patch", method: "PATCH", path: cronTabPath + "/a", body: `{}`, headers: []string{"Content-Type", "application/strategic-merge-patch+json"}, code: 415, want: []string{"application/merge-patch+json"}},
		{name: "no protobuf in", method: "POST", path: cronTabPath, body: "k8s\x00",
			headers: []string{"Content-Type", "application/vnd.kubernetes.protobuf"}, code: 415},
		{name: "no protobuf out", method: "GET", path: cronTabPath + "/a",
			headers: []string{"Accept", "application/vnd.kubernetes.protobuf"}, code: 406},
		{name: "JSON where it may be", method: "GET", path: cronTabPath + "/a", headers: []string{"Accept", "application/vnd.kubernetes.protobuf,application/json"}, code: 200, want: []string{`{"kind":"CronTab"`}},
		{name: "metadata alone has a protobuf form", method: "GET", path: cronTabPath,
			headers: []string{"Accept",
				"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}, code: 200,
			want: []string{"k8s\x00"}},
		{name: "the status is written apart", method: "PATCH", path: cronTabPath + "/a/status", body: `{"status":{"replicas":2,"labelSelector":"app=x"},"spec":{"image":"other"}}`, headers: []string{"Content-Type", merge}, code: 200, want: []string{`"replicas":2`, `"image":"nginx"`, `"generation":4`}},
		{name: "and not otherwise", method: "PATCH", path: cronTabPath + "/a", body: `{"status":{"replicas":7}}`, headers: []string{"Content-Type", merge}, code: 200, want: []string{`"status":{"labelSelector":"app=x","replicas":2}`, `"generation":4`}},
		{name: "its schema is checked", method: "PATCH", path: cronTabPath + "/a/status", body: `{"status":{"replicas":"two"}}`, headers: []string{"Content-Type", merge}, code: 422, want: []string{"status.replicas"}},
		{name: "scale is read", method: "GET", path: cronTabPath + "/a/scale", code: 200, want: []string{`"kind":"Scale"`, `"spec":{"replicas":3}`, `"status":{"replicas":2,"selector":"app=x"}`}},
		{name: "and set", method: "PATCH", path: cronTabPath + "/a/scale", body: `{"spec":{"replicas":5}}`, headers: []string{"Content-Type", merge}, code: 200, want: []string{`"spec":{"replicas":5}`}},
		{name: "by the schema's rules", method: "PATCH", path: cronTabPath + "/a/scale", body: `{"spec":{"replicas":50}}`, headers: []string{"Content-Type", merge}, code: 422, want: []string{"replicas above maxReplicas"}},
		{name: "fields are selected by", method: "GET", path: cronTabPath + "?fieldSelector=spec.color%3Dred", code: 200, want: []string{`"name":"a"`, `"kind":"CronTabList"`}, lacks: []string{`"name":"b"`}},
		{name: "others are not", method: "GET", path: cronTabPath + "?fieldSelector=spec.image%3Dred", code: 400,
			want: []string{"field label not supported"}},
		{name: "a table has the columns", method: "GET", path: cronTabPath, headers: []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}, code: 200, want: []string{`"name":"Replicas","type":"integer"`, `["a","* * * * */5",5,"`}},
		{name: "another version has its name and its fields", method: "GET", path: betaPath + "/a", code: 200, want: []string{`"apiVersion":"stable.example.com/v1beta1"`, `"image":"nginx"`}, lacks: []string{`"color"`, `"data"`}},
		{name: "and its columns", method: "GET", path: betaPath, headers: []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}, code: 200, want: []string{`"name":"Age"`}, lacks: []string{`"name":"Replicas"`}},
		{name: "and takes writes", method: "POST", path: betaPath, body: strings.Replace(strings.Replace(cronTabObject("e", ""), "/v1", "/v1beta1", 1), "* * * * */5", "yearly", 1), code: 201, want: []string{`"apiVersion":"stable.example.com/v1beta1"`}},
		{name: "apply makes", method: "PATCH", path: cronTabPath + "/f?fieldManager=one", body: cronTabObject("f", `,"jobs":[{"name":"x","run":"1"}]`), headers: []string{"Content-Type", apply}, code: 201, want: []string{`"f:jobs":{"k:{\"name\":\"x\"}"`}, lacks: []string{`"f:image"`}},
		{name: "apply merges lists by their keys", method: "PATCH", path: cronTabPath + "/f?fieldManager=two", body: `{"apiVersion":"stable.example.com/v1","kind":"CronTab","spec":{"jobs":[{"name":"y","run":"2"}]}}`, headers: []string{"Content-Type", apply}, code: 200, want: []string{`[{"name":"x","run":"1"},{"name":"y","run":"2"}]`}},
		{name: "apply conflicts", method: "PATCH", path: cronTabPath + "/f?fieldManager=two", body: `{"apiVersion":"stable.example.com/v1","kind":"CronTab","spec":{"cronSpec":"1 1 1 1 1"}}`, headers: []string{"Content-Type", apply}, code: 409, want: []string{`conflict with \"one\": .spec.cronSpec`}},
		{name: "another kind is refused", method: "POST", path: cronTabPath, body: strings.Replace(cronTabObject("g", ""), `"CronTab"`, `"Other"`, 1), code: 422},
		{name: "a dry run stores nothing", method: "POST", path: cronTabPath + "?dryRun=All",
			body: cronTabObject("g", ""),
			code: 201},
		{name: "as is seen", method: "GET", path: cronTabPath + "/g", code: 404},
		{name: "an update needs no other version than what is stored", method: "PUT", path: cronTabPath + "/b", body: strings.Replace(cronTabObject("b", ""), `"name":"b"`, `"name":"b","resourceVersion":"1"`, 1), code: 409},
		{name: "an update never makes", method: "PUT", path: cronTabPath + "/h", body: cronTabObject("h", ""),
			code: 404},
		{name: "one is deleted", method: "DELETE", path: cronTabPath + "/b", code: 200, want: []string{`"status":"Success"`}},
		{name: "discovery has them", method: "GET", path: "/apis/stable.example.com/v1", code: 200, want: []string{`"name":"crontabs"`, `"shortNames":["ct"]`, `"categories":["all"]`, `"name":"crontabs/scale"`, `"name":"crontabs/status"`}},
		{name: "the group prefers what is stable", method: "GET", path: "/apis/stable.example.com", code: 200, want: []string{`"preferredVersion":{"groupVersion":"stable.example.com/v1"`}},
		{name: "whole discovery too", method: "GET", path: "/apis", headers: []string{"Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}, code: 200, want: []string{`"resource":"crontabs"`}},
		{name: "OpenAPI 3", method: "GET", path: "/openapi/v3/apis/stable.example.com/v1", code: 200, want: []string{`"com.example.stable.v1.CronTab"`, "A table of jobs.", `"x-kubernetes-list-map-keys"`}},
		{name: "OpenAPI 2", method: "GET", path: "/openapi/v2", code: 200, want: []string{`"com.example.stable.v1.CronTab"`, `"com.example.stable.v1beta1.CronTabList"`, `"io.k8s.api.core.v1.Pod"`}},
		{name: "all are deleted", method: "DELETE", path: cronTabPath, code: 200},
		{name: "and gone", method: "GET", path: cronTabPath, code: 200, want: []string{`"items":[]`}},
	} {
		code, text := sendRequest(t, cfg, c.method, c.path, c.body, c.headers...)
		if code != c.code {
			t.Errorf("%s: %d instead of %d: %.600s", c.name, code, c.code, text)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in %.900s", c.name, want, text)
			}
		}
		for _, lacks := range c.lacks {
			if strings.Contains(text, lacks) {
				t.Errorf("%s: %s in %.900s", c.name, lacks, text)
			}
		}
	}
}
