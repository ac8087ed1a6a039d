package conformance

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// hasGeneration reports whether objects of a kind count the changes of their spec.
func hasGeneration(o object) bool { return valueAt(o, "metadata.generation") != nil }

func testCreate(t *testing.T, s *subject) {
	o, _ := s.newObject()
	// The server ignores a client's values of fields that it sets itself.
	o = withValue(withValue(withValue(o, "metadata.uid", "00000000-0000-0000-0000-000000000000"),
		"metadata.creationTimestamp", "2001-01-01T00:00:00Z"), "metadata.generation", 77)
	a := s.mustAnswer(t, 201, post(s.collection()+"?fieldManager=somebody", o))
	if a.textAt("apiVersion") != s.Version || a.textAt("kind") != s.Kind || a.textAt("metadata.name") != objectName(o) {
		t.Errorf("it is %s %s %s", a.textAt("apiVersion"), a.textAt("kind"), a.textAt("metadata.name"))
	}
	if s.Namespaced != (a.textAt("metadata.namespace") != "") {
		t.Errorf("namespace %q", a.textAt("metadata.namespace"))
	}
	if id := a.textAt("metadata.uid"); !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).
		MatchString(id) ||
		strings.HasPrefix(id, "00000000-0000-0000") {
		t.Errorf("uid %q", id)
	}
	if !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(a.textAt("metadata.resourceVersion")) {
		t.Errorf("resource version %q", a.textAt("metadata.resourceVersion"))
	}
	made, err := time.Parse(time.RFC3339, a.textAt("metadata.creationTimestamp"))
	if err != nil || time.Since(made).Abs() > time.Minute {
		t.Errorf("made at %q", a.textAt("metadata.creationTimestamp"))
	}
	if g := a.valueAt("metadata.generation"); g != nil && g != 1.0 {
		t.Errorf("generation %v", g)
	}
	if a.textAt("metadata.managedFields.0.manager") != "somebody" ||
		a.textAt("metadata.managedFields.0.operation") != "Update" ||
		a.textAt("metadata.managedFields.0.apiVersion") != s.Version ||
		a.textAt("metadata.managedFields.0.fieldsType") != "FieldsV1" {
		t.Errorf("managed fields: %v", a.valueAt("metadata.managedFields"))
	}
	if a.header.Get("Content-Type") != "application/json" {
		t.Errorf("content type %q", a.header.Get("Content-Type"))
	}
}

func testCreateTwice(t *testing.T, s *subject) {
	o, _ := s.newObject()
	s.mustAnswer(t, 201, post(s.collection(), o))
	a := s.mustRefuse(t, post(s.collection(), o), 409, "AlreadyExists", s.qualifiedResource()+` "`+objectName(o)+`" already exists`)
	if a.textAt("details.name") != objectName(o) || a.textAt("details.kind") != s.Resource ||
		a.textAt("details.group") != s.group() {
		t.Errorf("details %v", a.valueAt("details"))
	}
	o, _ = s.newObject()
	if a := s.do(t, post(s.collection(), withValue(o, "metadata.resourceVersion", "1"))); a.code < 400 ||
		!strings.Contains(a.textAt("message"), "resourceVersion should not be set on objects to be created") {
		t.Errorf("with a resource version: %d %s", a.code, a.raw)
	}
}

func testInvalidNames(t *testing.T, s *subject) {
	o, _ := s.newObject()
	bad := s.Names
	if bad == nil {
		bad = map[string]string{"A_B": "must consist of"}
	}
	for name, reason := range bad {
		a := s.mustRefuse(t, post(s.collection(), withValue(o, "metadata.name", name)), 422, "Invalid", reason)
		if cause := findCause(a, "metadata.name"); cause == nil {
			t.Errorf("causes: %v", a.valueAt("details.causes"))
		}
		if a.textAt("details.name") != name || a.textAt("details.kind") != s.Kind ||
			a.textAt("details.group") != s.storedGroup() {
			t.Errorf("details of what is invalid name its kind: %v", a.valueAt("details"))
		}
	}
	nameless := withValue(o, "metadata.name", "")
	a := s.mustRefuse(t, post(s.collection(), nameless), 422, "Invalid", "name or generateName is required")
	if cause := findCause(a, "metadata.name"); cause == nil || cause["reason"] != "FieldValueRequired" {
		t.Errorf("causes: %v", a.valueAt("details.causes"))
	}
}

// findCause returns the cause of a refusal for a field.
func findCause(a answer, field string) object {
	causes, _ := a.valueAt("details.causes").([]any)
	for _, c := range causes {
		if cause, ok := c.(object); ok && cause["field"] == field {
			return cause
		}
	}
	return nil
}

func testGenerateName(t *testing.T, s *subject) {
	if s.Name != "" {
		return // the names of these kinds have a meaning
	}
	o, _ := s.newObject()
	o = withValue(withValue(o, "metadata.name", ""), "metadata.generateName", "made-")
	a := s.mustAnswer(t, 201, post(s.collection(), o))
	if !regexp.MustCompile(`^made-[a-z0-9]{5}$`).MatchString(a.textAt("metadata.name")) ||
		a.textAt("metadata.generateName") != "made-" {
		t.Errorf("made %v", a.valueAt("metadata"))
	}
	if s.Kind == "CronJob" {
		return // names are shorter, so that the names of jobs fit
	}
	long := withValue(o, "metadata.generateName", strings.Repeat("x", 60))
	if a := s.mustAnswer(t, 201, post(s.collection(), long)); len(a.textAt("metadata.name")) != 63 {
		t.Errorf("a long base makes the name %q", a.textAt("metadata.name"))
	}
}

func testInvalidMetadata(t *testing.T, s *subject) {
	o, _ := s.newObject()
	owner := object{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}
	for _, c := range []struct {
		path          string
		value         any
		field, reason string
		message       string
	}{
		{"metadata.labels", object{"a/b/c": "d"}, "metadata.labels", "FieldValueInvalid", "must consist of " +
			"alphanumeric characters"},
		{"metadata.labels", object{"a": "b c"}, "metadata.labels", "FieldValueInvalid", "a valid label must be an " +
			"empty string or consist of"},
		{"metadata.annotations", object{"a b": "c"}, "metadata.annotations", "FieldValueInvalid", "name part must " +
			"consist of"},
		{"metadata.annotations", object{"a": strings.Repeat("x", 256<<10+1)}, "metadata.annotations",
			"FieldValueTooLong", "may not be more than 262144 bytes"},
		{"metadata.finalizers", []any{"a b"}, "metadata.finalizers", "FieldValueInvalid", "must consist of"},
		{"metadata.ownerReferences", []any{withValue(owner, "uid", "")}, "metadata.ownerReferences.uid",
			"FieldValueRequired", "must not be empty"},
		{"metadata.ownerReferences", []any{withValue(owner, "name", "")}, "metadata.ownerReferences.name",
			"FieldValueRequired", "must not be empty"},
		{"metadata.ownerReferences", []any{withValue(owner, "kind", "")}, "metadata.ownerReferences.kind",
			"FieldValueRequired", "must not be empty"},
		{"metadata.ownerReferences", []any{withValue(owner, "apiVersion", "")}, "metadata.ownerReferences.apiVersion",
			"FieldValueRequired", "must not be empty"},
		{"metadata.ownerReferences",
			[]any{withValue(owner, "controller", true), withValue(withValue(owner, "controller", true), "uid", "c")},
			"metadata.ownerReferences", "FieldValueInvalid", "Only one reference can have Controller set to true"},
	} {
		a := s.mustRefuse(t, post(s.collection(), withValue(o, c.path, c.value)), 422, "Invalid", c.message)
		found := false
		causes, _ := a.valueAt("details.causes").([]any)
		for _, one := range causes {
			cause, _ := one.(object)
			field, _ := cause["field"].(string)
			field = regexp.MustCompile(`\[\d+\]`).ReplaceAllString(field, "")
			found = found || field == c.field && cause["reason"] == c.reason
		}
		if !found {
			t.Errorf("%s: causes %v, want one of %s, %s", c.path, causes, c.field, c.reason)
		}
	}
	if s.Namespaced {
		s.mustRefuse(t, post(s.collection(), withValue(o, "metadata.namespace", "elsewhere")), 400, "BadRequest",
			"the namespace of the provided object does not match the namespace sent on the request")
		s.mustRefuse(t, post(s.namespacePath("nowhere"), withValue(s.newNamed("nowhere", objectName(o)),
			"metadata.namespace", "nowhere")), 404, "NotFound", `namespaces "nowhere" not found`)
		s.mustRefuse(t, post(s.allPath(), o), 405, "MethodNotAllowed", "")
	}
}

func testInvalidValues(t *testing.T, s *subject) {
	for _, r := range s.Refuse {
		o, _ := s.newObject()
		a := s.mustRefuse(t, post(s.collection(), withValue(o, r.Path, s.fillPlaceholders(r.Value, s.namespace))), 422,
			"Invalid", r.Message)
		mustCause(t, a, r)
		if want := s.Kind; a.code == 422 &&
			(a.textAt("details.kind") != want || a.textAt("details.name") != objectName(o) ||
				!strings.Contains(a.textAt("message"), ` "`+objectName(o)+`" is invalid: `)) {
			t.Errorf("%s: %v %s", r.Path, a.valueAt("details"), a.textAt("message"))
		}
	}
}

func mustCause(t *testing.T, a answer, r wantRefusal) {
	t.Helper()
	if a.code != 422 {
		return
	}
	cause := findCause(a, r.Field)
	if cause == nil || cause["reason"] != r.Reason {
		t.Errorf("%s: causes %v, want one of %s, %s", r.Path, a.valueAt("details.causes"), r.Field, r.Reason)
	}
}

func testCreateDryRun(t *testing.T, s *subject) {
	o, path := s.newObject()
	a := s.mustAnswer(t, 201, post(s.collection()+"?dryRun=All", o))
	if a.textAt("metadata.uid") == "" || a.textAt("metadata.creationTimestamp") == "" {
		t.Errorf("tried: %s", a.raw)
	}
	s.mustRefuse(t, get("%s", path), 404, "NotFound", "not found")
	bad := s.mustRefuse(t, post(s.collection()+"?dryRun=Some", o), 422, "Invalid",
		`dryRun: Unsupported value: ["Some"]: supported values: "All"`)
	if bad.textAt("details.kind") != "CreateOptions" || bad.textAt("details.group") != "meta.k8s.io" {
		t.Errorf("details %v", bad.valueAt("details"))
	}
}

func testFieldValidation(t *testing.T, s *subject) {
	unknown := func() object {
		o, _ := s.newObject()
		return withValue(withValue(o, "nobodyKnows", 1), "metadata.neither", "x")
	}
	if a := s.mustAnswer(t, 201, post(s.collection()+"?fieldValidation=Ignore", unknown())); strings.Contains(
		strings.Join(a.header.Values("Warning"), "\n"),
		"field",
	) ||
		a.valueAt("nobodyKnows") != nil {
		t.Errorf("ignored: %v %s", a.header.Values("Warning"), a.raw)
	}
	for _, query := range []string{"?fieldValidation=Warn", ""} {
		a := s.mustAnswer(t, 201, post(s.collection()+query, unknown()))
		warnings := strings.Join(a.header.Values("Warning"), "\n")
		for _, want := range []string{`299 - "unknown field \"nobodyKnows\""`, `299 - "unknown field \"metadata.neither\""`} {
			if !strings.Contains(warnings, want) {
				t.Errorf("warnings\n%s\nwant %s", warnings, want)
			}
		}
	}
	a := s.mustRefuse(t, post(s.collection()+"?fieldValidation=Strict", unknown()), 400, "BadRequest",
		`strict decoding error: unknown field "metadata.neither", unknown field "nobodyKnows"`)
	if !strings.Contains(a.textAt("message"), s.Kind+` in version "`) ||
		!strings.Contains(a.textAt("message"), "cannot be handled as a "+s.Kind) {
		t.Errorf("message %q", a.textAt("message"))
	}
	o, _ := s.newObject()
	twice := strings.Replace(string(encode(o)), `"metadata":{`, `"metadata":{"name":"first",`, 1)
	s.mustRefuse(t, post(s.collection()+"?fieldValidation=Strict", twice), 400, "BadRequest",
		`duplicate field "metadata.name"`)
	s.mustRefuse(t, post(s.collection()+"?fieldValidation=Wild", o), 422, "Invalid",
		`fieldValidation: Unsupported value: "Wild": supported values: "", "Ignore", "Strict", "Warn"`)
}

func testInvalidBodies(t *testing.T, s *subject) {
	o, _ := s.newObject()
	other := withValue(o, "kind", "Other")
	s.mustRefuse(t, post(s.collection(), other), 400, "BadRequest", "")
	s.mustRefuse(t, post(s.collection(), withValue(o, "apiVersion", "other/v7")), 400, "BadRequest", "")
	s.mustRefuse(t, post(s.collection(), "{"), 400, "BadRequest", "")
	s.mustRefuse(t, post(s.collection(), `{"metadata":7}`), 400, "BadRequest", "")
	s.mustRefuse(t, post(s.collection(), "[]"), 400, "BadRequest", "")
	a := s.mustRefuse(t, call{method: "POST", path: s.collection(), body: encode(o), contentType: "text/csv"}, 415,
		"UnsupportedMediaType", "the body of the request was in an unknown format - accepted media types include:")
	if !strings.Contains(a.textAt("message"), "application/json") ||
		!strings.Contains(a.textAt("message"), "application/yaml") {
		t.Errorf("message %q", a.textAt("message"))
	}
	s.mustRefuse(t, post(s.collection(), o).withAccept("text/csv"), 406, "NotAcceptable",
		"only the following media types are accepted: application/json, application/yaml, "+
			"application/vnd.kubernetes.protobuf")
	long := strings.Repeat("m", 129)
	s.mustRefuse(t, post(s.collection()+"?fieldManager="+long, o), 422, "Invalid",
		"fieldManager: Too long: may not be more than 128 bytes")
}

// A pod's selectors include the labels of label keys from its creation on, also when its labels change later.
// Proves S11.
func TestMatchLabelKeysAreMergedIntoSelectors(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "labelkeys")
	term := object{
		"topologyKey":       "z",
		"labelSelector":     object{"matchLabels": object{"app": "a"}},
		"matchLabelKeys":    []any{"hash", "lacking"},
		"mismatchLabelKeys": []any{"tenant"},
	}
	weighted := []any{object{"weight": 1, "podAffinityTerm": term}}
	affinity := object{
		"requiredDuringSchedulingIgnoredDuringExecution":  []any{term},
		"preferredDuringSchedulingIgnoredDuringExecution": weighted,
	}
	spread := object{
		"maxSkew":           1,
		"topologyKey":       "z",
		"whenUnsatisfiable": "DoNotSchedule",
		"labelSelector":     object{},
		"matchLabelKeys":    []any{"hash"},
	}
	pod := object{
		"metadata": object{"name": "p", "labels": object{"app": "a", "hash": "1", "tenant": "t"}},
		"spec": object{
			"containers": []any{
				object{"name": "c", "image": "i"},
			}, "affinity": object{"podAffinity": affinity, "podAntiAffinity": affinity},
			"topologySpreadConstraints": []any{spread},
		},
	}
	const path = "/api/v1/namespaces/labelkeys/pods"
	c.mustAnswer(t, 201, post(path, pod))
	c.mustAnswer(t, 200, patch(path+"/p", "merge-patch+json",
		object{"metadata": object{"labels": object{"hash": "2"}}}))
	a := c.mustAnswer(t, 200, get(path+"/p"))
	in := object{"key": "hash", "operator": "In", "values": []any{"1"}}
	both := []any{in, object{"key": "tenant", "operator": "NotIn", "values": []any{"t"}}}
	for where, want := range map[string][]any{
		"affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.0":                      both,
		"affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.0":                  both,
		"affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution.0.podAffinityTerm":     both,
		"affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution.0.podAffinityTerm": both,
		"topologySpreadConstraints.0": {in},
	} {
		if got := a.valueAt("spec." + where + ".labelSelector.matchExpressions"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v", where, got)
		}
	}
	twice := withValue(withValue(pod, "metadata.name", "twice"), "spec.topologySpreadConstraints",
		[]any{withValue(spread, "labelSelector", object{"matchLabels": object{"hash": "1"}})})
	c.mustRefuse(t, post(path, twice), 422, "Invalid",
		`spec.topologySpreadConstraints[0][0]: Invalid value: "hash": exists in both matchLabelKeys and labelSelector`)
}
