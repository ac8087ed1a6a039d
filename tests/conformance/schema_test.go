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

// derived is an object that is wrong in one way, with the answer that follows from what Kubernetes publishes of its
// types. Package corpus writes these with the name of the rule.
type derived struct {
	Rule    string         `json:"rule"`
	Set     map[string]any `json:"set"`   // values at paths of the sample's object; null deletes a value
	Twice   string         `json:"twice"` // a path whose field occurs twice
	By      []string       `json:"by"`
	Decoder string         `json:"decoder"`
	Patch   string         `json:"patch"`
	Apply   string         `json:"apply"`
	Refused string         `json:"refused"` // for all ways of sending
	Causes  []cause        `json:"causes"`
	Warning string         `json:"warning"`
}

// derivedOf are the wrong objects of a kind.
type derivedOf struct {
	Of    string    `json:"of"`
	Wrong []derived `json:"wrong"`
}

// everyKind is the name in the data for all stored kinds.
const everyKind = "every kind"

func readDerived(t testing.TB) map[string][]derived {
	t.Helper()
	files, err := filepath.Glob("testdata/schema/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no data: %v", err)
	}
	all := map[string][]derived{}
	for _, file := range files {
		if filepath.Base(file) == "managed.yaml" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []derivedOf
		if err := yaml.UnmarshalStrict(data, &kinds); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, k := range kinds {
			all[k.Of] = k.Wrong
		}
	}
	return all
}

// An object of any kind that violates its published schema in one way is answered as Kubernetes does, for all ways of
// sending.
// Proves S11, S12.
func TestWhatBreaksThePublishedSchemaIsAnsweredAsUpstreamDoes(t *testing.T) {
	c := shared(t)
	all := readDerived(t)
	for _, s := range samples(t) {
		if !s.serves("create") {
			continue
		}
		cases := all[s.String()]
		if !s.Answered {
			cases = slices.Concat(cases, all[everyKind])
		}
		if len(cases) < 5 {
			t.Errorf("%s: the data has %d objects that are wrong in one way, want five", s, len(cases))
		}
		t.Run(strings.ReplaceAll(s.String(), "/", "."), func(t *testing.T) {
			t.Parallel()
			on := &subject{sample: s, client: c, ns: fmt.Sprintf("schema%d", numbers.Add(1))}
			c.namespace(t, on.ns)
			w := &wrongly{subject: on}
			for _, d := range cases {
				for _, way := range w.ways(d) {
					err, known := w.answered(t, d, way), differences[difference{s.String(), d.path(), way}]
					if err != nil && known == "" {
						t.Errorf("%s %s by %s: %v", d.Rule, d.path(), way, err)
					}
					if err == nil && known != "" {
						t.Errorf(
							"%s %s by %s is answered as upstream does: it is no difference any more",
							d.Rule,
							d.path(),
							way,
						)
					}
				}
			}
		})
	}
}

func (d *derived) path() string {
	if d.Twice != "" {
		return d.Twice
	}
	for path, v := range d.Set {
		return path + "=" + string(encode(v))
	}
	return ""
}

// wrongly sends wrong objects of a kind.
type wrongly struct {
	*subject
	made object // the object to replace and patch
	path string
}

func (w *wrongly) ways(d derived) []string {
	var out []string
	for _, way := range everyWay {
		verb := map[string]string{"post": "create", "put": "update", "patch": "patch", "apply": "patch"}[way]
		if (len(d.By) == 0 || slices.Contains(d.By, way)) && w.serves(verb) {
			out = append(out, way)
		}
	}
	return out
}

func (w *wrongly) answered(t *testing.T, d derived, way string) error {
	t.Helper()
	a := w.do(t, w.request(t, d, way, "Strict"))
	switch {
	case d.Rule == "taken":
		if a.code >= 300 {
			return fmt.Errorf("%d %s: %s", a.code, a.text("reason"), a.text("message"))
		}
		return nil
	case d.Refused != "":
		code, text, _ := strings.Cut(d.Refused, " ")
		return refusedWith(a, code, reasons[code], text)
	case d.Causes != nil:
		return invalid(a, d.Causes)
	case way == "apply":
		code, text, _ := strings.Cut(d.Apply, " ")
		return refusedWith(a, code, reasons[code], text)
	case way == "patch":
		return refusedWith(a, "422", "Invalid", "patch: Invalid value: ", cmp.Or(d.Patch, d.Decoder))
	}
	_, version, found := strings.Cut(w.Version, "/")
	if !found {
		version = w.Version
	}
	if err := refusedWith(a, "400", "BadRequest", fmt.Sprintf("%s in version %q cannot be handled as a %s: "+
		"%s", w.Kind, version, w.Kind, d.Decoder)); err != nil ||
		d.Warning == "" ||
		w.Answered {
		return err
	}
	a = w.do(t, w.request(t, d, way, "Warn"))
	if told := a.header.Values("Warning"); a.code >= 300 || !slices.Contains(told, headers([]string{d.Warning})[0]) {
		return fmt.Errorf(
			"where it is to be warned of: %d, warnings %v, want %s: %s",
			a.code,
			told,
			d.Warning,
			a.text("message"),
		)
	}
	return nil
}

// reasons are the reasons of refusals by their codes. A 500 from an error that is not a status has none.
var reasons = map[string]string{"400": "BadRequest", "403": "Forbidden", "422": "Invalid"}

func refusedWith(a answer, code, reason string, texts ...string) error {
	ok := strconv.Itoa(a.code) == code && a.text("reason") == reason
	for _, text := range texts {
		ok = ok && strings.Contains(a.text("message"), text)
	}
	if !ok {
		return fmt.Errorf(
			"%d %s: %s\nwant %s %s: %s",
			a.code,
			a.text("reason"),
			a.text("message"),
			code,
			reason,
			strings.Join(texts, "…"),
		)
	}
	return nil
}

// invalid returns an error if an answer has other causes.
func invalid(a answer, causes []cause) error {
	if err := refusedWith(a, "422", "Invalid"); err != nil {
		return fmt.Errorf("%w%v", err, causes)
	}
	list, _ := a.at("details.causes").([]any)
	var got []cause
	for _, c := range list {
		text := func(key string) string { s, _ := at(c, key).(string); return s }
		got = append(got, cause{text("field"), text("reason"), text("message")})
	}
	meets := func(got, want cause) bool {
		return got.Field == want.Field && got.Reason == want.Reason && strings.Contains(got.Message, want.Message)
	}
	for _, want := range causes {
		if !slices.ContainsFunc(got, func(c cause) bool { return meets(c, want) }) {
			return fmt.Errorf("causes %+v\nlack %+v", got, want)
		}
	}
	for _, c := range got {
		if !slices.ContainsFunc(causes, func(want cause) bool { return meets(c, want) }) {
			return fmt.Errorf("cause %+v\nbesides %+v", c, causes)
		}
	}
	return nil
}

func (w *wrongly) request(t *testing.T, d derived, way, validation string) call {
	t.Helper()
	query := "?dryRun=All&fieldManager=corpus&fieldValidation=" + validation
	if w.Answered {
		query = "?fieldValidation=" + validation
	}
	if way == "post" || way == "apply" {
		o, path := w.new()
		if o["kind"] == "Binding" || w.Answered {
			o = w.review(o)
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
	if w.made == nil {
		w.made, w.path = w.created(t)
	}
	if way == "put" {
		if w.Kind == "APIService" { // the server writes its status meanwhile
			w.made = w.must(t, 200, get("%s", w.path)).obj
		}
		return put(w.path+query, d.body(t, w.made, w))
	}
	return patch(w.path+query, "merge-patch+json", d.change(t, w.made, w))
}

// review adds values to the empty samples of kinds that are answered and not stored.
func (w *wrongly) review(o object) object {
	for path, v := range reviewed[w.Kind] {
		o = with(o, path, w.filled(v, w.ns))
	}
	return o
}

var reviewed = map[string]object{
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
func (d *derived) body(t *testing.T, o object, w *wrongly) []byte {
	t.Helper()
	if d.Twice != "" {
		return doubled(t, o, d.Twice)
	}
	for path, v := range d.Set {
		o = placed(t, o, path, w.filled(v, w.ns))
	}
	return encode(o)
}

// change returns a merge patch with the wrong values. Lists are sent completely.
func (d *derived) change(t *testing.T, o object, w *wrongly) []byte {
	t.Helper()
	out := object{}
	if d.Twice != "" {
		top, _, _ := strings.Cut(d.Twice, ".")
		return doubled(t, object{top: o[top]}, d.Twice)
	}
	for path, v := range d.Set {
		v = w.filled(v, w.ns)
		if parts := strings.Split(path, "."); slices.ContainsFunc(parts, numeric) {
			path = strings.Join(parts[:slices.IndexFunc(parts, numeric)], ".")
			o = placed(t, o, d.onlyPath(), v)
			v = at(o, path)
		}
		out = with(out, path, v)
	}
	return encode(out)
}

func (d *derived) onlyPath() string {
	for path := range d.Set {
		return path
	}
	return ""
}

func numeric(part string) bool { _, err := strconv.Atoi(part); return err == nil }

// doubled returns an object's JSON with the field at a path twice.
func doubled(t *testing.T, o object, path string) []byte {
	t.Helper()
	i := strings.LastIndex(path, ".") + 1
	marked := string(encode(placed(t, o, path[:i]+"comes-again", at(o, path))))
	return []byte(strings.Replace(marked, `"comes-again"`, strconv.Quote(path[i:]), 1))
}

// placed returns a copy of an object with a value at a path, which may lead through lists. A nil value deletes the
// path.
func placed(t *testing.T, o object, path string, v any) object {
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

// difference identifies an answer that is known to differ from Kubernetes'.
type difference struct{ kind, path, way string }

// differences are the reasons of the differences.
var differences = map[difference]string{
	{"batch/v1/Job", "metadata.name=a%b", "post"}: "a job without labels is given its pods' before it is looked at, " +
		"so that its name is refused as a label of its own, too",
	{"batch/v1/Job", "metadata.name=a%b", "apply"}: "as by post",
}
