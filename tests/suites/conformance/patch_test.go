package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// jsonPointer returns a path in the format of JSON patches.
func jsonPointer(path string) string {
	return "/" + strings.ReplaceAll(strings.ReplaceAll(path, "/", "~1"), ".", "/")
}

func testPatch(t *testing.T, s *subject) {
	want := s.fillPlaceholders(s.Change.Value, s.namespace)
	merge := withValue(object{}, s.Change.Path, want)
	for _, kind := range []string{"merge-patch+json", "strategic-merge-patch+json"} {
		o, path := s.createObject(t)
		a := s.mustAnswer(t, 200, patch(path, kind, merge))
		s.checkChanged(t, a.obj)
		if resourceVersion(a.obj) == resourceVersion(o) {
			t.Errorf("%s left the version", kind)
		}
		again := s.mustAnswer(t, 200, patch(path, kind, merge))
		if resourceVersion(again.obj) != resourceVersion(a.obj) {
			t.Errorf("%s that changes nothing raised the version", kind)
		}
	}
	o, path := s.createObject(t)
	a := s.mustAnswer(t, 200, patch(path, "json-patch+json", []any{
		object{"op": "test", "path": "/metadata/name", "value": objectName(o)},
		object{"op": "add", "path": "/metadata/annotations", "value": object{"a": "b", "c": "d"}},
		object{"op": "remove", "path": "/metadata/annotations/a"},
		object{"op": "copy", "from": "/metadata/annotations/c", "path": "/metadata/annotations/e"},
		object{"op": "move", "from": "/metadata/annotations/c", "path": "/metadata/annotations/f"},
		object{"op": "replace", "path": "/metadata/annotations/e", "value": "g"},
	}))
	annotations, _ := a.valueAt("metadata.annotations").(object)
	delete(annotations, "deprecated.daemonset.template.generation") // the server sets this one
	if got := fmt.Sprint(annotations); got != "map[e:g f:d]" {
		t.Errorf("a JSON patch makes %v", got)
	}
	if !strings.HasPrefix(s.Change.Path, "metadata.") {
		parent := s.Change.Path[:max(0, strings.LastIndex(s.Change.Path, "."))]
		if parent == "" || valueAt(a.obj, parent) != nil {
			b := s.mustAnswer(t, 200, patch(path, "json-patch+json",
				[]any{object{"op": "add", "path": jsonPointer(s.Change.Path), "value": want}}))
			s.checkChanged(t, b.obj)
		}
	}
	// null deletes a value.
	s.mustAnswer(t, 200, patch(path, "merge-patch+json", object{"metadata": object{"annotations": object{"e": nil}}}))
	if got := s.mustAnswer(t, 200, get("%s", path)); got.valueAt("metadata.annotations.e") != nil {
		t.Errorf("annotations %v", got.valueAt("metadata.annotations"))
	}
	tried := s.mustAnswer(t, 200, patch(path+"?dryRun=All", "merge-patch+json",
		object{"metadata": object{"annotations": object{"tried": "yes"}}}))
	if got := s.mustAnswer(t, 200, get("%s", path)); tried.textAt("metadata.annotations.tried") != "yes" ||
		got.valueAt("metadata.annotations.tried") != nil {
		t.Errorf("a dry run left %v", got.valueAt("metadata.annotations"))
	}
}

func testInvalidPatches(t *testing.T, s *subject) {
	o, path := s.createObject(t)
	a := s.mustRefuse(t, call{method: "PATCH", path: path, body: []byte("{}"), contentType: "application/json"}, 415,
		"UnsupportedMediaType", "the body of the request was in an unknown format - accepted media types include: "+
			"application/json-patch+json, application/merge-patch+json")
	if !strings.Contains(a.textAt("message"), "application/apply-patch+yaml") {
		t.Errorf("message %q", a.textAt("message"))
	}
	s.mustRefuse(t, patch(path, "merge-patch+json", "{"), 400, "BadRequest", "")
	s.mustRefuse(t, patch(path, "merge-patch+json", "null"), 400, "BadRequest", "Invalid JSON Patch")
	s.mustRefuse(t, patch(path+"?fieldValidation=Ignore", "merge-patch+json", "1"), 400, "BadRequest",
		"Invalid JSON Patch")
	s.mustRefuse(t, patch(path, "strategic-merge-patch+json", object{"metadata": object{"labels": object{"a": 1}}}),
		422, "Invalid", `patch: Invalid value: "map[metadata:map[labels:map[a:1]]]": `)
	s.mustRefuse(t, patch(path, "strategic-merge-patch+json", object{"metadata": object{"$retainKeys": "a"}}), 400,
		"BadRequest", "invalid patch format of retainKeys")
	s.mustRefuse(t, patch(path, "json-patch+json", `{"op":"add"}`), 400, "BadRequest", "")
	s.mustRefuse(t, patch(path, "json-patch+json",
		[]any{object{"op": "test", "path": "/metadata/name", "value": "other"}}), 422, "Invalid", "")
	s.mustRefuse(t, patch(path, "json-patch+json", []any{object{"op": "remove", "path": "/metadata/nothing"}}), 422,
		"Invalid", "")
	s.mustRefuse(t, patch(path, "merge-patch+json", object{"metadata": object{"name": "other"}}), 400, "BadRequest", "")
	s.mustRefuse(t, patch(path, "merge-patch+json", object{"metadata": object{"resourceVersion": "1"}}), 409,
		"Conflict", "the object has been modified")
	s.mustRefuse(t, patch(path, "merge-patch+json",
		object{"metadata": object{"uid": "00000000-0000-0000-0000-000000000000"}}), 422, "Invalid",
		"metadata.uid: Invalid value: \"00000000-0000-0000-0000-000000000000\": field is immutable")
	s.mustRefuse(t, patch(path, "merge-patch+json", object{"metadata": object{"labels": object{"a/b/c": "d"}}}), 422,
		"Invalid", "metadata.labels: Invalid value")
	s.mustRefuse(t, patch(path+"-not", "merge-patch+json", object{}), 404, "NotFound",
		s.qualifiedResource()+` "`+objectName(o)+`-not" not found`)
	s.mustRefuse(t, patch(path+"?force=true", "merge-patch+json", object{}), 422, "Invalid",
		"force: Forbidden: may not be specified for non-apply patch")
	bad := s.mustRefuse(t, patch(path+"?dryRun=Some", "merge-patch+json", object{}), 422, "Invalid",
		"dryRun: Unsupported value")
	if bad.textAt("details.kind") != "PatchOptions" {
		t.Errorf("details %v", bad.valueAt("details"))
	}
	s.mustRefuse(t, patch(path+"?fieldValidation=Strict", "merge-patch+json", object{"nobodyKnows": 1}), 422, "Invalid",
		`unknown field "nobodyKnows"`)
	s.mustRefuse(t, patch(path+"?fieldValidation=Strict", "strategic-merge-patch+json", object{"nobodyKnows": 1}), 422,
		"Invalid", `unknown field "nobodyKnows"`)
	warned := s.mustAnswer(t, 200, patch(path, "merge-patch+json", object{"nobodyKnows": 1}))
	if !strings.Contains(strings.Join(warned.header.Values("Warning"), "\n"), `unknown field \"nobodyKnows\"`) {
		t.Errorf("warnings %v", warned.header.Values("Warning"))
	}
}

func testApply(t *testing.T, s *subject) {
	o, path := s.newObject()
	const kind = "apply-patch+yaml"
	a := s.mustAnswer(t, 201, patch(path+"?fieldManager=one", kind, o))
	if a.textAt("metadata.managedFields.0.manager") != "one" ||
		a.textAt("metadata.managedFields.0.operation") != "Apply" {
		t.Errorf("managed fields %v", a.valueAt("metadata.managedFields"))
	}
	stable := s.awaitServerChanges(t, a.obj, path)
	again := s.mustAnswer(t, 200, patch(path+"?fieldManager=one", kind, o))
	if resourceVersion(again.obj) != resourceVersion(stable) {
		t.Error("applying the same raised the version")
	}
	// One manager owns an annotation, and another applies a different value.
	mine := withValue(o, "metadata.annotations", object{"shared": "one", "own": "one"})
	s.mustAnswer(t, 200, patch(path+"?fieldManager=one", kind, mine))
	bare := object{"apiVersion": s.Version, "kind": s.Kind, "metadata": object{"name": objectName(o)}}
	if s.Namespaced {
		bare = withValue(bare, "metadata.namespace", s.namespace)
	}
	theirs := withValue(bare, "metadata.annotations", object{"shared": "two"})
	conflict := s.mustRefuse(t, patch(path+"?fieldManager=two", kind, theirs), 409, "Conflict",
		`conflict with "one": .metadata.annotations.shared`)
	if conflict.textAt("details.causes.0.reason") != "FieldManagerConflict" ||
		conflict.textAt("details.causes.0.field") != ".metadata.annotations.shared" {
		t.Errorf("causes %v", conflict.valueAt("details.causes"))
	}
	forced := s.mustAnswer(t, 200, patch(path+"?fieldManager=two&force=true", kind, theirs))
	if forced.textAt("metadata.annotations.shared") != "two" {
		t.Errorf("forced %v", forced.valueAt("metadata.annotations"))
	}
	// A field that a manager leaves out is deleted if no other manager owns it.
	left := s.mustAnswer(t, 200, patch(path+"?fieldManager=one", kind, o))
	if left.valueAt("metadata.annotations.own") != nil || left.textAt("metadata.annotations.shared") != "two" {
		t.Errorf("left out %v", left.valueAt("metadata.annotations"))
	}
	missing := s.mustRefuse(t, patch(path, kind, o), 422, "Invalid",
		"fieldManager: Required value: is required for apply patch")
	if missing.textAt("details.kind") != "PatchOptions" || missing.textAt("details.group") != "meta.k8s.io" {
		t.Errorf("details %v", missing.valueAt("details"))
	}
	s.mustRefuse(t, patch(path+"?fieldManager=m", kind, withValue(o, "metadata.managedFields",
		[]any{object{"manager": "x", "operation": "Apply"}})), 400, "BadRequest", "metadata.managedFields must be nil")
	s.mustRefuse(t, patch(path+"?fieldManager=m&fieldValidation=Strict", kind, withValue(o, "nobodyKnows", 1)), 500, "",
		"nobodyKnows: field not declared in schema")
	s.mustRefuse(t, patch(path+"?fieldManager=m", kind, "a: b: c"), 400, "BadRequest", "")
}
