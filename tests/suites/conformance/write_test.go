package conformance

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

var errStillExists = errors.New("it is still there")

// withChange returns an object with the sample's change.
func (s *subject) withChange(o object) object {
	return withValue(o, s.Change.Path, s.fillPlaceholders(s.Change.Value, s.namespace))
}

func (s *subject) checkChanged(t *testing.T, o object) {
	t.Helper()
	want := s.fillPlaceholders(s.Change.Value, s.namespace)
	if got := valueAt(o, s.Change.Path); !isSubset(want, got) {
		t.Errorf("%s is %v, want %v", s.Change.Path, got, want)
	}
}

// isSubset reports whether got contains everything in want. Defaults may be added.
func isSubset(want, got any) bool {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		for k, v := range w {
			ok = ok && isSubset(v, g[k])
		}
		return ok
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			ok = ok && isSubset(w[i], g[i])
		}
		return ok
	}
	return reflect.DeepEqual(want, got)
}

func testUpdate(t *testing.T, s *subject) {
	o, path := s.createObject(t)
	same := s.mustAnswer(t, 200, put(path, o))
	if same.textAt("metadata.resourceVersion") != resourceVersion(o) {
		t.Errorf("nothing changed, and the version went from %s to %s", resourceVersion(o),
			same.textAt("metadata.resourceVersion"))
	}
	a := s.mustAnswer(t, 200, put(path, s.withChange(o)))
	s.checkChanged(t, a.obj)
	if resourceVersion(a.obj) == resourceVersion(o) || objectUID(a.obj) != objectUID(o) ||
		a.textAt("metadata.creationTimestamp") != valueAt(o, "metadata.creationTimestamp") {
		t.Errorf("metadata %v was %v", a.valueAt("metadata"), o["metadata"])
	}
	counted := hasGeneration(o) && !strings.HasPrefix(s.Change.Path, "metadata.")
	if g, _ := a.valueAt("metadata.generation").(float64); counted && g != 2 || !counted && hasGeneration(o) && g != 1 {
		t.Errorf("generation %v", g)
	}
	blind := withValue(s.withChange(o), "metadata.resourceVersion", "")
	if needsVersion[s.Resource] {
		s.mustRefuse(
			t,
			put(path, blind),
			422,
			"Invalid",
			s.qualifiedResource()+` "`+objectName(
				o,
			)+`" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`,
		)
		return
	}
	// An update without a version has no precondition.
	s.mustAnswer(t, 200, put(path, withValue(blind, "metadata.annotations", object{"blind": "yes"})))
	tried := s.mustAnswer(t, 200,
		put(path+"?dryRun=All", withValue(blind, "metadata.annotations", object{"tried": "yes"})))
	if tried.textAt("metadata.annotations.tried") != "yes" {
		t.Errorf("tried %s", tried.raw)
	}
	if got := s.mustAnswer(t, 200, get("%s", path)); got.valueAt("metadata.annotations.tried") != nil ||
		got.textAt("metadata.annotations.blind") != "yes" {
		t.Errorf("after a dry run %v", got.valueAt("metadata.annotations"))
	}
}

func testInvalidUpdates(t *testing.T, s *subject) {
	o, path := s.createObject(t)
	s.mustAnswer(t, 200, put(path, withValue(o, "metadata.annotations", object{"first": "yes"})))
	a := s.mustRefuse(
		t,
		put(path, withValue(o, "metadata.annotations", object{"second": "yes"})),
		409,
		"Conflict",
		"Operation cannot be fulfilled on "+s.qualifiedResource()+` "`+objectName(
			o,
		)+`": the object has been modified; please apply your changes to the latest version and try again`,
	)
	if a.textAt("details.name") != objectName(o) || a.textAt("details.kind") != s.Resource ||
		a.textAt("details.group") != s.group() {
		t.Errorf("details %v", a.valueAt("details"))
	}
	fresh := withValue(o, "metadata.resourceVersion", "")
	s.mustRefuse(t, put(path, withValue(fresh, "metadata.uid", "00000000-0000-0000-0000-000000000000")), 409,
		"Conflict",
		"Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000, UID in object meta: "+
			objectUID(o))
	s.mustRefuse(t, put(path, withValue(fresh, "metadata.name", "other")), 400, "BadRequest",
		"the name of the object (other) does not match the name on the URL ("+objectName(o)+")")
	s.mustRefuse(t, put(path, withValue(fresh, "metadata.name", "")), 400, "BadRequest", "name must be provided")
	if s.Namespaced {
		s.mustRefuse(t, put(path, withValue(fresh, "metadata.namespace", "elsewhere")), 400, "BadRequest",
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	s.mustRefuse(t, put(path+"?fieldValidation=Strict", withValue(fresh, "nobodyKnows", 1)), 400, "BadRequest",
		`strict decoding error: unknown field "nobodyKnows"`)
	bad := s.mustRefuse(t, put(path+"?dryRun=Some", fresh), 422, "Invalid", "dryRun: Unsupported value")
	if bad.textAt("details.kind") != "UpdateOptions" {
		t.Errorf("details %v", bad.valueAt("details"))
	}
	missing, missingPath := s.newObject()
	if createdByUpdate[s.Resource] {
		made := s.mustAnswer(t, 201, put(missingPath, missing))
		if made.textAt("metadata.uid") == "" {
			t.Errorf("made by an update: %s", made.raw)
		}
		return
	}
	s.mustRefuse(t, put(missingPath, missing), 404, "NotFound", s.qualifiedResource()+` "`+objectName(missing)+`" not found`)
}

// createdByUpdate are the resources that an update creates if they do not exist. The reference documents the answer 201
// of "replace the specified" for them.
var createdByUpdate = map[string]bool{
	"leases": true, "events": true, "endpoints": true, "services": true, "limitranges": true, "podtemplates": true,
	"roles": true, "rolebindings": true, "clusterroles": true, "clusterrolebindings": true, "priorityclasses": true,
	"runtimeclasses": true,
}

// needsVersion are the resources whose updates must contain the version that was read. Upstream does not allow
// unconditional updates of them.
var needsVersion = map[string]bool{
	"leases": true, "runtimeclasses": true, "poddisruptionbudgets": true, "customresourcedefinitions": true,
	"apiservices":                   true,
	"mutatingwebhookconfigurations": true, "validatingwebhookconfigurations": true, "validatingadmissionpolicies": true,
	"validatingadmissionpolicybindings": true,
	"mutatingadmissionpolicies":         true, "mutatingadmissionpolicybindings": true, "clustertrustbundles": true,
	"podcertificaterequests": true,
	"csidrivers":             true, "csinodes": true, "csistoragecapacities": true, "volumeattachments": true,
	"storageversionmigrations": true,
}

// withoutVersion returns an object without the version that was read, unless the resource requires it.
func (s *subject) withoutVersion(o object) object {
	if needsVersion[s.Resource] {
		return o
	}
	return withValue(o, "metadata.resourceVersion", "")
}

func testInvalidUpdatedValues(t *testing.T, s *subject) {
	for _, r := range s.RefuseUpdate {
		o, path := s.createObject(t)
		r.Value = s.fillPlaceholders(r.Value, s.namespace)
		bad := s.withoutVersion(withValue(o, r.Path, r.Value))
		mustCause(t, s.mustRefuse(t, put(path, bad), 422, "Invalid", r.Message), r)
	}
	o, path := s.createObject(t)
	s.mustRefuse(t, put(path, withValue(o, "metadata.labels", object{"a/b/c": "d"})), 422, "Invalid",
		"metadata.labels: Invalid value")
}

func testStatus(t *testing.T, s *subject) {
	if s.Status == nil {
		return
	}
	o, path := s.createObject(t)
	want := s.fillPlaceholders(s.Status.Value, s.namespace)
	s.mustAnswer(t, 200, put(path,
		withValue(withValue(o, s.Status.Path, want), "metadata.annotations", object{"a": "b"})))
	if got := s.mustAnswer(t, 200, get("%s", path)); isSubset(want, valueAt(got.obj, s.Status.Path)) {
		t.Errorf("a write to the object changed its status: %v", got.valueAt("status"))
	}
	o = s.mustAnswer(t, 200, get("%s/status", path)).obj
	sent := withValue(o, s.Status.Path, want)
	if !strings.HasPrefix(s.Change.Path, "metadata.") {
		sent = withValue(sent, s.Change.Path, s.fillPlaceholders(s.Change.Value, s.namespace))
	}
	if s.Status.IsRefused {
		return
	}
	a := s.mustAnswer(t, 200, put(path+"/status", sent))
	if !isSubset(want, valueAt(a.obj, s.Status.Path)) {
		t.Errorf("status %v, want %v", a.valueAt("status"), want)
	}
	if !strings.HasPrefix(s.Change.Path, "metadata.") &&
		reflect.DeepEqual(valueAt(a.obj, s.Change.Path), s.fillPlaceholders(s.Change.Value, s.namespace)) {
		t.Errorf("a write to the status changed %s", s.Change.Path)
	}
	if valueAt(o, "metadata.generation") != a.valueAt("metadata.generation") {
		t.Errorf("a write to the status raised the generation to %v", a.valueAt("metadata.generation"))
	}
	for _, kind := range []string{"merge-patch+json", "strategic-merge-patch+json"} {
		s.mustAnswer(t, 200, patch(path+"/status?fieldManager=m", kind, withValue(object{}, s.Status.Path, want)))
	}
	applied := withValue(object{"apiVersion": s.Version, "kind": s.Kind, "metadata": object{"name": objectName(o)}},
		s.Status.Path, want)
	s.mustAnswer(t, 200, patch(path+"/status?fieldManager=m&force=true", "apply-patch+yaml", applied))
	s.mustRefuse(t, put(path+"/status", withValue(sent, "metadata.resourceVersion", "1")), 409, "Conflict",
		"the object has been modified")
	s.mustRefuse(t, put(s.collection()+"/missing/status", withValue(withValue(sent, "metadata.name", "missing"),
		"metadata.resourceVersion", "")), 404, "NotFound", "")
}
