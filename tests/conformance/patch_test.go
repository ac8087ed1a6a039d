package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// pointer returns a path in the format of JSON patches.
func pointer(path string) string {
	return "/" + strings.ReplaceAll(strings.ReplaceAll(path, "/", "~1"), ".", "/")
}

func patches(t *testing.T, s *subject) {
	want := s.filled(s.Change.Value, s.ns)
	merge := with(object{}, s.Change.Path, want)
	for _, kind := range []string{"merge-patch+json", "strategic-merge-patch+json"} {
		o, path := s.created(t)
		a := s.must(t, 200, patch(path, kind, merge))
		s.mustBeChanged(t, a.obj)
		if version(a.obj) == version(o) {
			t.Errorf("%s left the version", kind)
		}
		again := s.must(t, 200, patch(path, kind, merge))
		if version(again.obj) != version(a.obj) {
			t.Errorf("%s that changes nothing raised the version", kind)
		}
	}
	o, path := s.created(t)
	a := s.must(t, 200, patch(path, "json-patch+json", []any{
		object{"op": "test", "path": "/metadata/name", "value": name(o)},
		object{"op": "add", "path": "/metadata/annotations", "value": object{"a": "b", "c": "d"}},
		object{"op": "remove", "path": "/metadata/annotations/a"},
		object{"op": "copy", "from": "/metadata/annotations/c", "path": "/metadata/annotations/e"},
		object{"op": "move", "from": "/metadata/annotations/c", "path": "/metadata/annotations/f"},
		object{"op": "replace", "path": "/metadata/annotations/e", "value": "g"},
	}))
	annotations, _ := a.at("metadata.annotations").(object)
	delete(annotations, "deprecated.daemonset.template.generation") // the server sets this one
	if got := fmt.Sprint(annotations); got != "map[e:g f:d]" {
		t.Errorf("a JSON patch makes %v", got)
	}
	if !strings.HasPrefix(s.Change.Path, "metadata.") {
		parent := s.Change.Path[:max(0, strings.LastIndex(s.Change.Path, "."))]
		if parent == "" || at(a.obj, parent) != nil {
			b := s.must(
				t,
				200,
				patch(
					path,
					"json-patch+json",
					[]any{object{"op": "add", "path": pointer(s.Change.Path), "value": want}},
				),
			)
			s.mustBeChanged(t, b.obj)
		}
	}
	// null deletes a value.
	s.must(t, 200, patch(path, "merge-patch+json", object{"metadata": object{"annotations": object{"e": nil}}}))
	if got := s.must(t, 200, get("%s", path)); got.at("metadata.annotations.e") != nil {
		t.Errorf("annotations %v", got.at("metadata.annotations"))
	}
	tried := s.must(
		t,
		200,
		patch(
			path+"?dryRun=All",
			"merge-patch+json",
			object{"metadata": object{"annotations": object{"tried": "yes"}}},
		),
	)
	if got := s.must(t, 200, get("%s", path)); tried.text("metadata.annotations.tried") != "yes" ||
		got.at("metadata.annotations.tried") != nil {
		t.Errorf("a dry run left %v", got.at("metadata.annotations"))
	}
}

func refusesPatches(t *testing.T, s *subject) {
	o, path := s.created(t)
	a := s.refused(
		t,
		call{method: "PATCH", path: path, body: []byte("{}"), contentType: "application/json"},
		415,
		"UnsupportedMediaType",
		"the body of the request was in an unknown format - accepted media types include: "+
			"application/json-patch+json, application/merge-patch+json",
	)
	if !strings.Contains(a.text("message"), "application/apply-patch+yaml") {
		t.Errorf("message %q", a.text("message"))
	}
	s.refused(t, patch(path, "merge-patch+json", "{"), 400, "BadRequest", "")
	s.refused(t, patch(path, "merge-patch+json", "null"), 400, "BadRequest", "Invalid JSON Patch")
	s.refused(
		t,
		patch(path+"?fieldValidation=Ignore", "merge-patch+json", "1"),
		400,
		"BadRequest",
		"Invalid JSON Patch",
	)
	s.refused(
		t,
		patch(path, "strategic-merge-patch+json", object{"metadata": object{"labels": object{"a": 1}}}),
		422,
		"Invalid",
		`patch: Invalid value: "map[metadata:map[labels:map[a:1]]]": `,
	)
	s.refused(
		t,
		patch(path, "strategic-merge-patch+json", object{"metadata": object{"$retainKeys": "a"}}),
		400,
		"BadRequest",
		"invalid patch format of retainKeys",
	)
	s.refused(t, patch(path, "json-patch+json", `{"op":"add"}`), 400, "BadRequest", "")
	s.refused(
		t,
		patch(path, "json-patch+json", []any{object{"op": "test", "path": "/metadata/name", "value": "other"}}),
		422,
		"Invalid",
		"",
	)
	s.refused(
		t,
		patch(path, "json-patch+json", []any{object{"op": "remove", "path": "/metadata/nothing"}}),
		422,
		"Invalid",
		"",
	)
	s.refused(t, patch(path, "merge-patch+json", object{"metadata": object{"name": "other"}}), 400, "BadRequest", "")
	s.refused(
		t,
		patch(path, "merge-patch+json", object{"metadata": object{"resourceVersion": "1"}}),
		409,
		"Conflict",
		"the object has been modified",
	)
	s.refused(
		t,
		patch(path, "merge-patch+json", object{"metadata": object{"uid": "00000000-0000-0000-0000-000000000000"}}),
		422,
		"Invalid",
		"metadata.uid: Invalid value: \"00000000-0000-0000-0000-000000000000\": field is immutable",
	)
	s.refused(
		t,
		patch(path, "merge-patch+json", object{"metadata": object{"labels": object{"a/b/c": "d"}}}),
		422,
		"Invalid",
		"metadata.labels: Invalid value",
	)
	s.refused(
		t,
		patch(path+"-not", "merge-patch+json", object{}),
		404,
		"NotFound",
		s.qualified()+` "`+name(o)+`-not" not found`,
	)
	s.refused(
		t,
		patch(path+"?force=true", "merge-patch+json", object{}),
		422,
		"Invalid",
		"force: Forbidden: may not be specified for non-apply patch",
	)
	bad := s.refused(
		t,
		patch(path+"?dryRun=Some", "merge-patch+json", object{}),
		422,
		"Invalid",
		"dryRun: Unsupported value",
	)
	if bad.text("details.kind") != "PatchOptions" {
		t.Errorf("details %v", bad.at("details"))
	}
	s.refused(
		t,
		patch(path+"?fieldValidation=Strict", "merge-patch+json", object{"nobodyKnows": 1}),
		422,
		"Invalid",
		`unknown field "nobodyKnows"`,
	)
	s.refused(
		t,
		patch(path+"?fieldValidation=Strict", "strategic-merge-patch+json", object{"nobodyKnows": 1}),
		422,
		"Invalid",
		`unknown field "nobodyKnows"`,
	)
	warned := s.must(t, 200, patch(path, "merge-patch+json", object{"nobodyKnows": 1}))
	if !strings.Contains(strings.Join(warned.header.Values("Warning"), "\n"), `unknown field \"nobodyKnows\"`) {
		t.Errorf("warnings %v", warned.header.Values("Warning"))
	}
}

func applies(t *testing.T, s *subject) {
	o, path := s.new()
	const kind = "apply-patch+yaml"
	a := s.must(t, 201, patch(path+"?fieldManager=one", kind, o))
	if a.text("metadata.managedFields.0.manager") != "one" || a.text("metadata.managedFields.0.operation") != "Apply" {
		t.Errorf("managed fields %v", a.at("metadata.managedFields"))
	}
	settled := s.settled(t, a.obj, path)
	again := s.must(t, 200, patch(path+"?fieldManager=one", kind, o))
	if version(again.obj) != version(settled) {
		t.Error("applying the same raised the version")
	}
	// One manager owns an annotation, and another applies a different value.
	mine := with(o, "metadata.annotations", object{"shared": "one", "own": "one"})
	s.must(t, 200, patch(path+"?fieldManager=one", kind, mine))
	bare := object{"apiVersion": s.Version, "kind": s.Kind, "metadata": object{"name": name(o)}}
	if s.Namespaced {
		bare = with(bare, "metadata.namespace", s.ns)
	}
	theirs := with(bare, "metadata.annotations", object{"shared": "two"})
	conflict := s.refused(
		t,
		patch(path+"?fieldManager=two", kind, theirs),
		409,
		"Conflict",
		`conflict with "one": .metadata.annotations.shared`,
	)
	if conflict.text("details.causes.0.reason") != "FieldManagerConflict" ||
		conflict.text("details.causes.0.field") != ".metadata.annotations.shared" {
		t.Errorf("causes %v", conflict.at("details.causes"))
	}
	forced := s.must(t, 200, patch(path+"?fieldManager=two&force=true", kind, theirs))
	if forced.text("metadata.annotations.shared") != "two" {
		t.Errorf("forced %v", forced.at("metadata.annotations"))
	}
	// A field that a manager leaves out is deleted if no other manager owns it.
	left := s.must(t, 200, patch(path+"?fieldManager=one", kind, o))
	if left.at("metadata.annotations.own") != nil || left.text("metadata.annotations.shared") != "two" {
		t.Errorf("left out %v", left.at("metadata.annotations"))
	}
	missing := s.refused(
		t,
		patch(path, kind, o),
		422,
		"Invalid",
		"fieldManager: Required value: is required for apply patch",
	)
	if missing.text("details.kind") != "PatchOptions" || missing.text("details.group") != "meta.k8s.io" {
		t.Errorf("details %v", missing.at("details"))
	}
	s.refused(
		t,
		patch(
			path+"?fieldManager=m",
			kind,
			with(o, "metadata.managedFields", []any{object{"manager": "x", "operation": "Apply"}}),
		),
		400,
		"BadRequest",
		"metadata.managedFields must be nil",
	)
	s.refused(
		t,
		patch(path+"?fieldManager=m&fieldValidation=Strict", kind, with(o, "nobodyKnows", 1)),
		500,
		"",
		"nobodyKnows: field not declared in schema",
	)
	s.refused(t, patch(path+"?fieldManager=m", kind, "a: b: c"), 400, "BadRequest", "")
}
