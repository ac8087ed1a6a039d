package conformance

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

var errStill = errors.New("it is still there")

// changed returns an object with the sample's change.
func (s *subject) changed(o object) object {
	return with(o, s.Change.Path, s.filled(s.Change.Value, s.ns))
}

func (s *subject) mustBeChanged(t *testing.T, o object) {
	t.Helper()
	want := s.filled(s.Change.Value, s.ns)
	if got := at(o, s.Change.Path); !subset(want, got) {
		t.Errorf("%s is %v, want %v", s.Change.Path, got, want)
	}
}

// subset reports whether got contains everything in want. Defaults may be added.
func subset(want, got any) bool {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		for k, v := range w {
			ok = ok && subset(v, g[k])
		}
		return ok
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			ok = ok && subset(w[i], g[i])
		}
		return ok
	}
	return reflect.DeepEqual(want, got)
}

func updates(t *testing.T, s *subject) {
	o, path := s.created(t)
	same := s.must(t, 200, put(path, o))
	if same.text("metadata.resourceVersion") != version(o) {
		t.Errorf(
			"nothing changed, and the version went from %s to %s",
			version(o),
			same.text("metadata.resourceVersion"),
		)
	}
	a := s.must(t, 200, put(path, s.changed(o)))
	s.mustBeChanged(t, a.obj)
	if version(a.obj) == version(o) || uid(a.obj) != uid(o) ||
		a.text("metadata.creationTimestamp") != at(o, "metadata.creationTimestamp") {
		t.Errorf("metadata %v was %v", a.at("metadata"), o["metadata"])
	}
	counted := hasGeneration(o) && !strings.HasPrefix(s.Change.Path, "metadata.")
	if g, _ := a.at("metadata.generation").(float64); counted && g != 2 || !counted && hasGeneration(o) && g != 1 {
		t.Errorf("generation %v", g)
	}
	blind := with(s.changed(o), "metadata.resourceVersion", "")
	if guarded[s.Resource] {
		s.refused(
			t,
			put(path, blind),
			422,
			"Invalid",
			s.qualified()+` "`+name(
				o,
			)+`" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`,
		)
		return
	}
	// An update without a version has no precondition.
	s.must(t, 200, put(path, with(blind, "metadata.annotations", object{"blind": "yes"})))
	tried := s.must(t, 200, put(path+"?dryRun=All", with(blind, "metadata.annotations", object{"tried": "yes"})))
	if tried.text("metadata.annotations.tried") != "yes" {
		t.Errorf("tried %s", tried.raw)
	}
	if got := s.must(t, 200, get("%s", path)); got.at("metadata.annotations.tried") != nil ||
		got.text("metadata.annotations.blind") != "yes" {
		t.Errorf("after a dry run %v", got.at("metadata.annotations"))
	}
}

func refusesUpdates(t *testing.T, s *subject) {
	o, path := s.created(t)
	s.must(t, 200, put(path, with(o, "metadata.annotations", object{"first": "yes"})))
	a := s.refused(
		t,
		put(path, with(o, "metadata.annotations", object{"second": "yes"})),
		409,
		"Conflict",
		"Operation cannot be fulfilled on "+s.qualified()+` "`+name(
			o,
		)+`": the object has been modified; please apply your changes to the latest version and try again`,
	)
	if a.text("details.name") != name(o) || a.text("details.kind") != s.Resource ||
		a.text("details.group") != s.group() {
		t.Errorf("details %v", a.at("details"))
	}
	fresh := with(o, "metadata.resourceVersion", "")
	s.refused(
		t,
		put(path, with(fresh, "metadata.uid", "00000000-0000-0000-0000-000000000000")),
		409,
		"Conflict",
		"Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000, UID in object meta: "+uid(o),
	)
	s.refused(
		t,
		put(path, with(fresh, "metadata.name", "other")),
		400,
		"BadRequest",
		"the name of the object (other) does not match the name on the URL ("+name(o)+")",
	)
	s.refused(t, put(path, with(fresh, "metadata.name", "")), 400, "BadRequest", "name must be provided")
	if s.Namespaced {
		s.refused(
			t,
			put(path, with(fresh, "metadata.namespace", "elsewhere")),
			400,
			"BadRequest",
			"the namespace of the provided object does not match the namespace sent on the request",
		)
	}
	s.refused(
		t,
		put(path+"?fieldValidation=Strict", with(fresh, "nobodyKnows", 1)),
		400,
		"BadRequest",
		`strict decoding error: unknown field "nobodyKnows"`,
	)
	bad := s.refused(t, put(path+"?dryRun=Some", fresh), 422, "Invalid", "dryRun: Unsupported value")
	if bad.text("details.kind") != "UpdateOptions" {
		t.Errorf("details %v", bad.at("details"))
	}
	missing, missingPath := s.new()
	if upserts[s.Resource] {
		made := s.must(t, 201, put(missingPath, missing))
		if made.text("metadata.uid") == "" {
			t.Errorf("made by an update: %s", made.raw)
		}
		return
	}
	s.refused(t, put(missingPath, missing), 404, "NotFound", s.qualified()+` "`+name(missing)+`" not found`)
}

// upserts are the resources that an update creates if they do not exist. The reference documents the answer 201 of
// "replace the specified" for them.
var upserts = map[string]bool{
	"leases": true, "events": true, "endpoints": true, "services": true, "limitranges": true, "podtemplates": true,
	"roles": true, "rolebindings": true, "clusterroles": true, "clusterrolebindings": true, "priorityclasses": true,
	"runtimeclasses": true,
}

// guarded are the resources whose updates must contain the version that was read. Upstream does not allow unconditional
// updates of them.
var guarded = map[string]bool{
	"leases": true, "runtimeclasses": true, "poddisruptionbudgets": true, "customresourcedefinitions": true,
	"apiservices":                   true,
	"mutatingwebhookconfigurations": true, "validatingwebhookconfigurations": true, "validatingadmissionpolicies": true,
	"validatingadmissionpolicybindings": true,
	"mutatingadmissionpolicies":         true, "mutatingadmissionpolicybindings": true, "clustertrustbundles": true,
	"podcertificaterequests": true,
	"csidrivers":             true, "csinodes": true, "csistoragecapacities": true, "volumeattachments": true,
	"storageversionmigrations": true,
}

// unread returns an object without the version that was read, unless the resource requires it.
func (s *subject) unread(o object) object {
	if guarded[s.Resource] {
		return o
	}
	return with(o, "metadata.resourceVersion", "")
}

func refusesUpdatedValues(t *testing.T, s *subject) {
	for _, r := range s.RefuseUpdate {
		o, path := s.created(t)
		r.Value = s.filled(r.Value, s.ns)
		bad := s.unread(with(o, r.Path, r.Value))
		mustCause(t, s.refused(t, put(path, bad), 422, "Invalid", r.Message), r)
	}
	o, path := s.created(t)
	s.refused(
		t,
		put(path, with(o, "metadata.labels", object{"a/b/c": "d"})),
		422,
		"Invalid",
		"metadata.labels: Invalid value",
	)
}

func statuses(t *testing.T, s *subject) {
	if s.Status == nil {
		return
	}
	o, path := s.created(t)
	want := s.filled(s.Status.Value, s.ns)
	s.must(t, 200, put(path, with(with(o, s.Status.Path, want), "metadata.annotations", object{"a": "b"})))
	if got := s.must(t, 200, get("%s", path)); subset(want, at(got.obj, s.Status.Path)) {
		t.Errorf("a write to the object changed its status: %v", got.at("status"))
	}
	o = s.must(t, 200, get("%s/status", path)).obj
	sent := with(o, s.Status.Path, want)
	if !strings.HasPrefix(s.Change.Path, "metadata.") {
		sent = with(sent, s.Change.Path, s.filled(s.Change.Value, s.ns))
	}
	if s.Status.Refused {
		return
	}
	a := s.must(t, 200, put(path+"/status", sent))
	if !subset(want, at(a.obj, s.Status.Path)) {
		t.Errorf("status %v, want %v", a.at("status"), want)
	}
	if !strings.HasPrefix(s.Change.Path, "metadata.") &&
		reflect.DeepEqual(at(a.obj, s.Change.Path), s.filled(s.Change.Value, s.ns)) {
		t.Errorf("a write to the status changed %s", s.Change.Path)
	}
	if at(o, "metadata.generation") != a.at("metadata.generation") {
		t.Errorf("a write to the status raised the generation to %v", a.at("metadata.generation"))
	}
	for _, kind := range []string{"merge-patch+json", "strategic-merge-patch+json"} {
		s.must(t, 200, patch(path+"/status?fieldManager=m", kind, with(object{}, s.Status.Path, want)))
	}
	applied := with(
		object{"apiVersion": s.Version, "kind": s.Kind, "metadata": object{"name": name(o)}},
		s.Status.Path,
		want,
	)
	s.must(t, 200, patch(path+"/status?fieldManager=m&force=true", "apply-patch+yaml", applied))
	s.refused(
		t,
		put(path+"/status", with(sent, "metadata.resourceVersion", "1")),
		409,
		"Conflict",
		"the object has been modified",
	)
	s.refused(
		t,
		put(
			s.collection()+"/missing/status",
			with(with(sent, "metadata.name", "missing"), "metadata.resourceVersion", ""),
		),
		404,
		"NotFound",
		"",
	)
}
