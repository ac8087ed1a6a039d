package conformance

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

//go:generate go run -tags grpcnotrace ./corpus

// wrongObject is an object that is wrong in one way, with the answer that follows from what Kubernetes publishes of its
// types. Package corpus writes these with the name of the rule.
type wrongObject struct {
	Rule    string         `json:"rule"`
	Set     map[string]any `json:"set"`   // values at paths of the sample's object; null deletes a value
	Twice   string         `json:"twice"` // a path whose field occurs twice
	By      []string       `json:"by"`
	Decoder string         `json:"decoder"`
	Patch   string         `json:"patch"`
	Apply   string         `json:"apply"`
	Refused string         `json:"refused"` // for all ways of sending
	Causes  []wantCause    `json:"causes"`
	Warning string         `json:"warning"`
}

// wrongObjects are the wrong objects of a kind.
type wrongObjects struct {
	Of      string        `json:"of"`
	Objects []wrongObject `json:"wrong"`
}

// everyKind is the name in the data for all stored kinds.
const everyKind = "every kind"

func readWrongObjects(t testing.TB) map[string][]wrongObject {
	t.Helper()
	files, err := filepath.Glob("testdata/schema/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no data: %v", err)
	}
	all := map[string][]wrongObject{}
	for _, file := range files {
		if filepath.Base(file) == "managed.yaml" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []wrongObjects
		if err := yaml.UnmarshalStrict(data, &kinds); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, k := range kinds {
			all[k.Of] = k.Objects
		}
	}
	return all
}

// An object of any kind that violates its published schema in one way is answered as Kubernetes does, for all ways of
// sending.
// Proves S11, S12.
func TestSchemaViolationsAreAnsweredAsByUpstream(t *testing.T) {
	c := sharedClient(t)
	all := readWrongObjects(t)
	for _, s := range readSamples(t) {
		if !s.hasVerb("create") {
			continue
		}
		cases := all[s.String()]
		if !s.IsAnswerOnly {
			cases = slices.Concat(cases, all[everyKind])
		}
		if len(cases) < 5 {
			t.Errorf("%s: the data has %d objects that are wrong in one way, want five", s, len(cases))
		}
		t.Run(strings.ReplaceAll(s.String(), "/", "."), func(t *testing.T) {
			t.Parallel()
			on := &subject{sample: s, client: c, namespace: fmt.Sprintf("schema%d", uniqueNumbers.Add(1))}
			c.createNamespace(t, on.namespace)
			w := &wrongSender{subject: on}
			for _, d := range cases {
				for _, way := range w.methods(d) {
					err, isKnownDifference := w.checkAnswer(t, d, way),
						knownDifferences[knownDifference{s.String(), d.path(), way}]
					if err != nil && isKnownDifference == "" {
						t.Errorf("%s %s by %s: %v", d.Rule, d.path(), way, err)
					}
					if err == nil && isKnownDifference != "" {
						t.Errorf("%s %s by %s is answered as upstream does: it is no difference any more", d.Rule,
							d.path(), way)
					}
				}
			}
		})
	}
}

func (d *wrongObject) path() string {
	if d.Twice != "" {
		return d.Twice
	}
	for path, v := range d.Set {
		return path + "=" + string(encode(v))
	}
	return ""
}

// wrongSender sends wrong objects of a kind.
type wrongSender struct {
	*subject
	existing object // the object to replace and patch
	path     string
}

func (w *wrongSender) methods(d wrongObject) []string {
	var out []string
	for _, way := range sendMethods {
		verb := map[string]string{"post": "create", "put": "update", "patch": "patch", "apply": "patch"}[way]
		if (len(d.By) == 0 || slices.Contains(d.By, way)) && w.hasVerb(verb) {
			out = append(out, way)
		}
	}
	return out
}

func (w *wrongSender) checkAnswer(t *testing.T, d wrongObject, way string) error {
	t.Helper()
	a := w.do(t, w.request(t, d, way, "Strict"))
	switch {
	case d.Rule == "taken":
		if a.code >= 300 {
			return fmt.Errorf("%d %s: %s", a.code, a.textAt("reason"), a.textAt("message"))
		}
		return nil
	case d.Refused != "":
		code, text, _ := strings.Cut(d.Refused, " ")
		return checkRefused(a, code, codeReasons[code], text)
	case d.Causes != nil:
		return checkCauses(a, d.Causes)
	case way == "apply":
		code, text, _ := strings.Cut(d.Apply, " ")
		return checkRefused(a, code, codeReasons[code], text)
	case way == "patch":
		return checkRefused(a, "422", "Invalid", "patch: Invalid value: ", cmp.Or(d.Patch, d.Decoder))
	}
	_, version, found := strings.Cut(w.Version, "/")
	if !found {
		version = w.Version
	}
	if err := checkRefused(a, "400", "BadRequest", fmt.Sprintf("%s in version %q cannot be handled as a %s: "+
		"%s", w.Kind, version, w.Kind, d.Decoder)); err != nil ||
		d.Warning == "" ||
		w.IsAnswerOnly {
		return err
	}
	a = w.do(t, w.request(t, d, way, "Warn"))
	if warnings := a.header.Values("Warning"); a.code >= 300 ||
		!slices.Contains(warnings, warningHeaders([]string{d.Warning})[0]) {
		return fmt.Errorf("where it is to be warned of: %d, warnings %v, want %s: %s", a.code, warnings, d.Warning,
			a.textAt("message"))
	}
	return nil
}

// codeReasons are the reasons of refusals by their codes. A 500 from an error that is not a status has none.
var codeReasons = map[string]string{"400": "BadRequest", "403": "Forbidden", "422": "Invalid"}

func checkRefused(a answer, code, reason string, texts ...string) error {
	ok := strconv.Itoa(a.code) == code && a.textAt("reason") == reason
	for _, text := range texts {
		ok = ok && strings.Contains(a.textAt("message"), text)
	}
	if !ok {
		return fmt.Errorf("%d %s: %s\nwant %s %s: %s", a.code, a.textAt("reason"), a.textAt("message"), code, reason,
			strings.Join(texts, "…"))
	}
	return nil
}

// checkCauses returns an error if an answer has other causes.
func checkCauses(a answer, causes []wantCause) error {
	if err := checkRefused(a, "422", "Invalid"); err != nil {
		return fmt.Errorf("%w%v", err, causes)
	}
	list, _ := a.valueAt("details.causes").([]any)
	var got []wantCause
	for _, c := range list {
		text := func(key string) string { s, _ := valueAt(c, key).(string); return s }
		got = append(got, wantCause{text("field"), text("reason"), text("message")})
	}
	meets := func(got, want wantCause) bool {
		return got.Field == want.Field && got.Reason == want.Reason && strings.Contains(got.Message, want.Message)
	}
	for _, want := range causes {
		if !slices.ContainsFunc(got, func(c wantCause) bool { return meets(c, want) }) {
			return fmt.Errorf("causes %+v\nlack %+v", got, want)
		}
	}
	for _, c := range got {
		if !slices.ContainsFunc(causes, func(want wantCause) bool { return meets(c, want) }) {
			return fmt.Errorf("cause %+v\nbesides %+v", c, causes)
		}
	}
	return nil
}

func (w *wrongSender) request(t *testing.T, d wrongObject, way, validation string) call {
	t.Helper()
	query := "?dryRun=All&fieldManager=corpus&fieldValidation=" + validation
	if w.IsAnswerOnly {
		query = "?fieldValidation=" + validation
	}
	if way == "post" || way == "apply" {
		o, path := w.newObject()
		if o["kind"] == "Binding" || w.IsAnswerOnly {
			o = w.withReview(o)
		}
		body := d.body(t, o, w)
		if way == "post" {
			return post(w.collection()+query, body)
		}
		if d.Set["metadata.name"] != nil {
			path = w.collection() + "/a%25b"
		}
		return patch(path+query, "apply-patch+yaml", body)
	}
	if w.existing == nil {
		w.existing, w.path = w.createObject(t)
	}
	if way == "put" {
		if w.Kind == "APIService" { // the server writes its status meanwhile
			w.existing = w.mustAnswer(t, 200, get("%s", w.path)).obj
		}
		return put(w.path+query, d.body(t, w.existing, w))
	}
	return patch(w.path+query, "merge-patch+json", d.change(t, w.existing, w))
}

// withReview adds values to the empty samples of kinds that are answered and not stored.
func (w *wrongSender) withReview(o object) object {
	for path, v := range reviewObjects[w.Kind] {
		o = withValue(o, path, w.fillPlaceholders(v, w.namespace))
	}
	return o
}

var reviewObjects = map[string]object{
	"TokenReview": {"spec": object{"token": "t"}},
	"SubjectAccessReview": {
		"spec": object{"user": "u", "nonResourceAttributes": object{"path": "/", "verb": "get"}},
	},
	"SelfSubjectAccessReview": {"spec": object{"nonResourceAttributes": object{"path": "/", "verb": "get"}}},
	"LocalSubjectAccessReview": {
		"spec": object{
			"user":               "u",
			"resourceAttributes": object{"namespace": "$NAMESPACE", "verb": "get", "resource": "pods"},
		},
	},
	"SelfSubjectRulesReview": {"spec": object{"namespace": "$NAMESPACE"}},
	"Binding":                {"target": object{"kind": "Node", "name": "n"}},
}

// body returns an object with the wrong values.
func (d *wrongObject) body(t *testing.T, o object, w *wrongSender) []byte {
	t.Helper()
	if d.Twice != "" {
		return withDoubledField(t, o, d.Twice)
	}
	for path, v := range d.Set {
		o = withPlacedValue(t, o, path, w.fillPlaceholders(v, w.namespace))
	}
	return encode(o)
}

// change returns a merge patch with the wrong values. Lists are sent completely.
func (d *wrongObject) change(t *testing.T, o object, w *wrongSender) []byte {
	t.Helper()
	out := object{}
	if d.Twice != "" {
		top, _, _ := strings.Cut(d.Twice, ".")
		return withDoubledField(t, object{top: o[top]}, d.Twice)
	}
	for path, v := range d.Set {
		v = w.fillPlaceholders(v, w.namespace)
		if parts := strings.Split(path, "."); slices.ContainsFunc(parts, isNumber) {
			path = strings.Join(parts[:slices.IndexFunc(parts, isNumber)], ".")
			o = withPlacedValue(t, o, d.onlyPath(), v)
			v = valueAt(o, path)
		}
		out = withValue(out, path, v)
	}
	return encode(out)
}

func (d *wrongObject) onlyPath() string {
	for path := range d.Set {
		return path
	}
	return ""
}

func isNumber(part string) bool { _, err := strconv.Atoi(part); return err == nil }

// withDoubledField returns an object's JSON with the field at a path twice.
func withDoubledField(t *testing.T, o object, path string) []byte {
	t.Helper()
	i := strings.LastIndex(path, ".") + 1
	marked := string(encode(withPlacedValue(t, o, path[:i]+"comes-again", valueAt(o, path))))
	return []byte(strings.Replace(marked, `"comes-again"`, strconv.Quote(path[i:]), 1))
}

// withPlacedValue returns a copy of an object with a value at a path, which may lead through lists. A nil value deletes
// the path.
func withPlacedValue(t *testing.T, o object, path string, v any) object {
	t.Helper()
	out := clone(o)
	parts := strings.Split(path, ".")
	var in any = out
	for i, part := range parts {
		last := i == len(parts)-1
		switch at := in.(type) {
		case object:
			switch {
			case last && v == nil:
				delete(at, part)
			case last:
				at[part] = v
			case at[part] == nil:
				at[part] = object{}
			}
			in = at[part]
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n >= len(at) {
				t.Fatalf("%s: there is no %s", path, part)
			}
			if last {
				at[n] = v
			}
			in = at[n]
		default:
			t.Fatalf("%s: %s is in a %T", path, part, in)
		}
	}
	return out
}

// knownDifference identifies an answer that is known to differ from Kubernetes'.
type knownDifference struct{ kind, path, way string }

// knownDifferences are the reasons of the differences.
var knownDifferences = map[knownDifference]string{
	{"batch/v1/Job", "metadata.name=a%b", "post"}: "a job without labels is given its pods' before it is looked at, " +
		"so that its name is refused as a label of its own, too",
	{"batch/v1/Job", "metadata.name=a%b", "apply"}: "as by post",
}
