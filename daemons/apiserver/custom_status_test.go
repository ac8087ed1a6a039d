package apiserver_test

import (
	"strings"
	"testing"
)

// gateways has defaults for the whole status and for fields in it, as the definitions of Gateway API and Flux do.
const gateways = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gateways.net.example.com"},"spec":{
 "group":"net.example.com","scope":"Namespaced","names":{"plural":"gateways","kind":"Gateway"},"versions":[
 {"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
  "spec":{"type":"object","properties":{"class":{"type":"string"}}},
  "status":{"type":"object","default":{"conditions":[{"type":"Accepted","status":"Unknown"}]},"properties":{
   "phase":{"type":"string","default":"Pending"},
   "conditions":{"type":"array","items":{"type":"object","properties":{"type":{"type":"string"},"status":{"type":"string"},"reason":{"type":"string","default":"Waiting"}}}}}}}}}},
 {"name":"v1beta1","served":true,"storage":false,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
  "spec":{"type":"object","properties":{"class":{"type":"string"}}},
  "status":{"type":"object","default":{"phase":"Old"},"properties":{"phase":{"type":"string"},"conditions":{"type":"array","items":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}]}}`

// Readers see the defaults of a status, even if the object was written without them, from the response to the create
// on. So a controller that waits for conditions finds those that the definition promises.
// Proves S12.
func TestStatusDefaultsAreFilledIn(t *testing.T) {
	s := stores["memory"](t)
	cfg := startConfig(t, s, nil)
	const path = "/apis/net.example.com/v1/namespaces/default/gateways"
	createDefinition(t, cfg, gateways, path)
	const begun, waiting = `"phase":"Pending"`, `"conditions":[{"reason":"Waiting","status":"Unknown","type":"Accepted"}]`
	object := func(name, more string) string {
		return `{"apiVersion":"net.example.com/v1","kind":"Gateway","metadata":{"name":"` + name + `"},"spec":{"class":"a"}` + more + `}`
	}
	for i, c := range []struct {
		method, path, body string
		wants              []string
		not                string
	}{
		{"POST", "", object("a", ""), []string{begun, waiting}, ""},
		{"POST", "?dryRun=All", object("dry", ""), []string{begun, waiting}, ""},
		{"GET", "/a", "", []string{begun, waiting}, ""},
		{"GET", "", "", []string{begun, waiting}, ""},
		// a create ignores the status
		{"POST", "", object("b", `,"status":{"phase":"Mine"}`), []string{begun, waiting}, "Mine"},
		{"PUT", "/a", object("a", `,"status":{"phase":"Mine"}`), []string{begun, waiting}, "Mine"},
		{"PATCH", "/a", `{"spec":{"class":"b"}}`, []string{begun, waiting, `"generation":2`}, ""},
		{"PATCH", "/a/status", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, []string{begun, `"conditions":[{"reason":"Waiting","status":"True","type":"Ready"}]`}, ""},
		{"PATCH", "/a/status", `{"status":null}`, []string{begun, waiting}, "Ready"},
		{"PUT", "/a/status", object("a", ``), []string{begun, waiting}, "Ready"},
		{"PUT", "/a/status", object("a", `,"status":{"phase":"Up"}`), []string{`"status":{"phase":"Up"}`}, ""},
		{"PUT", "/a/status", object("a", `,"status":{}`), []string{`"status":{"phase":"Pending"}`}, ""},
		{"PUT", "/a", object("a", ""), []string{`"status":{"phase":"Pending"}`}, ""},
		{"GET", "/b", "", []string{begun, waiting, `"generation":1`}, ""},
	} {
		var headers []string
		switch c.method {
		case "PATCH":
			headers = []string{"Content-Type", "application/merge-patch+json"}
		case "PUT": // must have the resource version that it replaces
			_, now := sendRequest(t, cfg, "GET", path+"/a", "")
			_, version, _ := strings.Cut(now, `"resourceVersion":"`)
			version, _, _ = strings.Cut(version, `"`)
			c.body = strings.Replace(c.body, `"name":"a"`, `"name":"a","resourceVersion":"`+version+`"`, 1)
		}
		code, text := sendRequest(t, cfg, c.method, path+c.path, c.body, headers...)
		for _, want := range c.wants {
			if code >= 300 || !strings.Contains(text, want) {
				t.Errorf("%d: %s %s: %d %s, want %s", i, c.method, c.path, code, text, want)
			}
		}
		if c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("%d: %s %s: %s", i, c.method, c.path, text)
		}
	}
	// Objects that were written without defaults have them too, on another server.
	_, before := sendRequest(t, cfg, "GET", path+"/b", "")
	if _, after := sendRequest(t, startConfig(t, s, nil), "GET", path+"/b", ""); after != before {
		t.Errorf("another server has\n%s, this one\n%s", after, before)
	}
	// A patch without changes writes at most once, for the defaults.
	_, first := sendRequest(t, cfg, "PATCH", path+"/b", `{"spec":{"class":"a"}}`, "Content-Type",
		"application/merge-patch+json")
	if _, second := sendRequest(t, cfg, "PATCH", path+"/b", `{"spec":{"class":"a"}}`, "Content-Type", "application/merge-patch+json"); first != second {
		t.Errorf("first\n%s, then\n%s", first, second)
	}
	if _, old := sendRequest(t, cfg, "GET", "/apis/net.example.com/v1beta1/namespaces/default/gateways/b",
		""); !strings.Contains(old, begun) {
		t.Errorf("in another version: %s", old)
	}
}
