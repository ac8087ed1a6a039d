package conformance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An object that is wrong in one way is sent in each way. By upstream's documentation of field validation, a whole
// object with a wrong type is answered with 400 and a patch with 422. Apply is answered with 500, because the object
// does not fit the schema. For invalid values the message is the same for all ways, and the samples contain it.

// POST and apply give the same answer to objects of a kind, both to valid ones and to those that are wrong in one way.
// So do PUT and patch.
// Proves S11, S12.
func TestAllMethodsAreAnsweredAlike(t *testing.T) {
	c := sharedClient(t)
	for _, s := range readSamples(t) {
		// The server writes the status of an APIService whenever it has checked the backend.
		if s.IsAnswerOnly || s.Kind == "APIService" || unservedKinds[s.String()] || !s.hasVerb("patch") ||
			!s.hasVerb("update") {
			continue
		}
		t.Run(strings.ReplaceAll(s.String(), "/", "."), func(t *testing.T) {
			t.Parallel()
			on := &subject{sample: s, client: c, namespace: fmt.Sprintf("ways%d", uniqueNumbers.Add(1))}
			c.createNamespace(t, on.namespace)
			made, path := on.createObject(t)
			testValidObject(t, on, made, path)
			testUnknownFields(t, on, made, path)
			testWrongTypes(t, on, made, path)
			for _, r := range s.Refuse {
				testInvalidCreate(t, on, r)
			}
			for _, r := range append(slices.Clone(s.Refuse), s.RefuseUpdate...) {
				testInvalidUpdate(t, on, made, path, r)
			}
		})
	}
}

func testValidObject(t *testing.T, s *subject, made object, path string) {
	t.Helper()
	o, at := s.newObject()
	posted := s.mustAnswer(t, 201, post(s.collection()+"?dryRun=All", o))
	applied := s.mustAnswer(t, 201, patch(at+"?dryRun=All&fieldManager=m", "apply-patch+yaml", o))
	for _, section := range slices.Sorted(maps.Keys(posted.obj)) {
		if section == "metadata" || section == "status" {
			continue
		}
		got, before := randomPattern.ReplaceAllString(string(encode(posted.obj[section])),
			"X"), randomPattern.ReplaceAllString(string(encode(applied.obj[section])), "X")
		if got != before {
			t.Errorf("%s: posted\n%s\napplied\n%s", section, got, before)
		}
	}
	s.mustAnswer(t, 200, put(path+"?dryRun=All", made))
	s.mustAnswer(t, 200, patch(path+"?dryRun=All", "merge-patch+json", object{}))
}

// randomPattern matches addresses, ports, times and names that are generated for each object.
var randomPattern = regexp.MustCompile(
	`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|10\.(9[6-9]|1[01][0-9])\.[0-9]+\.[0-9]+|"(nodePort|healthCheckNodePort)":[0-9]+|[0-9a-f]{8}-[0-9a-f-]{27}|kube-api-access-[a-z0-9]+|x[0-9]+`,
)

func testUnknownFields(t *testing.T, s *subject, made object, path string) {
	t.Helper()
	o, at := s.newObject()
	o, replaced := withValue(o, "metadata.nobodyKnows", 1), withValue(made, "metadata.nobodyKnows", 1)
	change := object{"metadata": object{"nobodyKnows": 1}}
	const text = `unknown field "metadata.nobodyKnows"`
	const strict = "?dryRun=All&fieldValidation=Strict"
	s.mustRefuse(t, post(s.collection()+strict, o), 400, "BadRequest", text)
	s.mustRefuse(t, put(path+strict, replaced), 400, "BadRequest", text)
	s.mustRefuse(t, patch(path+strict, "merge-patch+json", change), 422, "Invalid", text)
	for _, validation := range []string{"Strict", "Warn", "Ignore"} {
		s.mustRefuse(t, patch(at+"?dryRun=All&fieldManager=m&fieldValidation="+validation, "apply-patch+yaml", o), 500,
			"", ".metadata.nobodyKnows: field not declared in schema")
	}
	for validation, warned := range map[string]bool{"Warn": true, "Ignore": false} {
		query := "?dryRun=All&fieldValidation=" + validation
		for _, a := range []answer{
			s.mustAnswer(t, 201, post(s.collection()+query, o)), s.mustAnswer(t, 200, put(path+query, replaced)),
			s.mustAnswer(t, 200, patch(path+query, "merge-patch+json", change)),
		} {
			if hasWarning := slices.Contains(a.header.Values("Warning"), `299 - "unknown field \"metadata.nobodyKnows\""`); hasWarning != warned ||
				a.valueAt("metadata.nobodyKnows") != nil {
				t.Errorf("%s: warnings %v, %v", validation, a.header.Values("Warning"),
					a.valueAt("metadata.nobodyKnows"))
			}
		}
	}
	twice := func(o object) string {
		return strings.Replace(string(encode(o)), `"metadata":{`, `"metadata":{"name":"first",`, 1)
	}
	good, _ := s.newObject()
	s.mustRefuse(t, post(s.collection()+strict, twice(good)), 400, "BadRequest", `duplicate field "metadata.name"`)
	s.mustRefuse(t, put(path+strict, twice(made)), 400, "BadRequest", `duplicate field "metadata.name"`)
}

// testWrongTypes replaces each value of the object with a list, which is valid for none of them.
func testWrongTypes(t *testing.T, s *subject, made object, path string) {
	t.Helper()
	wrong := []any{[]any{7}}
	o, where := s.newObject()
	paths := []string{"metadata.labels", "metadata.annotations", "metadata.name"}
	for _, p := range slices.Sorted(maps.Keys(o)) {
		if p == "apiVersion" || p == "kind" || p == "metadata" || s.Kind == "ControllerRevision" && p == "data" {
			continue // a revision may contain any data
		}
		paths = append(paths, p)
		if in, ok := o[p].(object); ok && (s.Kind != "ConfigMap" && s.Kind != "Secret" || p != "data") {
			for _, name := range slices.Sorted(maps.Keys(in)) {
				paths = append(paths, p+"."+name)
			}
		}
	}
	for _, p := range paths {
		bad := withValue(o, p, wrong)
		s.mustRefuse(t, post(s.collection()+"?dryRun=All", bad), 400, "BadRequest", "cannot be handled as a "+s.Kind)
		s.mustRefuse(t, put(path+"?dryRun=All", withValue(made, p, wrong)), 400, "BadRequest", "cannot be handled as "+
			"a "+s.Kind)
		if p != "metadata.name" { // the name is needed to find the object
			s.mustRefuse(t, patch(path+"?dryRun=All", "merge-patch+json", withValue(object{}, p, wrong)), 422,
				"Invalid", "patch: Invalid value: ")
			s.mustRefuse(t, patch(where+"?dryRun=All&fieldManager=m", "apply-patch+yaml", bad), 500, "",
				"failed to create typed patch object")
		}
	}
}

// refusalText returns the reason and the causes of a refusal, without the object's name.
func refusalText(a answer) string {
	return fmt.Sprint(a.code, " ",
		randomPattern.ReplaceAllString(a.textAt("reason")+" "+string(encode(a.valueAt("details.causes"))), "X"))
}

func testInvalidCreate(t *testing.T, s *subject, r wantRefusal) {
	t.Helper()
	o, at := s.newObject()
	bad := withValue(o, r.Path, s.fillPlaceholders(r.Value, s.namespace))
	posted, applied := s.do(t, post(s.collection()+"?dryRun=All", bad)), s.do(t, patch(at+"?dryRun=All&fieldManager=m",
		"apply-patch+yaml", bad))
	if applied.code == 500 && strings.Contains(applied.textAt("message"), "failed to create typed patch object") {
		return // lists with unique keys are checked before values are validated
	}
	if refusalText(posted) != refusalText(applied) || posted.code != 422 {
		t.Errorf("%s %v: posted\n%s\napplied\n%s %s", r.Path, r.Value, refusalText(posted), refusalText(applied),
			applied.textAt("message"))
	}
}

func testInvalidUpdate(t *testing.T, s *subject, made object, path string, r wantRefusal) {
	t.Helper()
	v := s.fillPlaceholders(r.Value, s.namespace)
	if _, ok := v.(object); ok {
		return // a patch is merged with the present value, but a PUT replaces it
	}
	replaced, patched := s.do(t, put(path+"?dryRun=All", withValue(made, r.Path, v))), s.do(t, patch(path+"?dryRun=All",
		"merge-patch+json", withValue(object{}, r.Path, v)))
	if refusalText(replaced) != refusalText(patched) {
		t.Errorf("%s %v: replaced\n%s\npatched\n%s", r.Path, r.Value, refusalText(replaced), refusalText(patched))
	}
}
