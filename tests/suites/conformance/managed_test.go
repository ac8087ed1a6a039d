package conformance

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// fieldOwners lists the owners of the fields of a kind's sample, which package corpus computes from the published
// schema of server-side apply.
type fieldOwners struct {
	Sample   string         `json:"of"`
	Defaults map[string]any `json:"defaults"`
	Post     object         `json:"post"`
	Apply    object         `json:"apply"`
	Change   object         `json:"change"` // of the client that changes one value afterwards
	Kept     object         `json:"kept"`   // of the client that posted the object, after that change; nil: as in Post
}

func readFieldOwners(t testing.TB) map[string]*fieldOwners {
	t.Helper()
	data, err := os.ReadFile("testdata/schema/managed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list []*fieldOwners
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]*fieldOwners{}
	for _, a := range list {
		all[a.Sample] = a
	}
	return all
}

// A client that writes an object of any kind owns the same fields as in Kubernetes, for all ways of writing. The object
// gets its defaults.
// Proves S11, S12.
func TestManagedFieldsOfAllKindsMatchUpstream(t *testing.T) {
	c := sharedClient(t)
	all := readFieldOwners(t)
	for _, s := range readSamples(t) {
		if s.IsAnswerOnly || !s.hasVerb("create") {
			continue
		}
		a := all[s.String()]
		if a == nil {
			t.Errorf("the data has no %s", s)
			continue
		}
		t.Run(strings.ReplaceAll(s.String(), "/", "."), func(t *testing.T) {
			t.Parallel()
			on := &subject{sample: s, client: c, namespace: fmt.Sprintf("managed%d", uniqueNumbers.Add(1))}
			c.createNamespace(t, on.namespace)
			a.testNew(t, on)
			if s.hasVerb("update") && s.hasVerb("patch") {
				a.testChanged(t, on)
			}
		})
	}
}

func (a *fieldOwners) testNew(t *testing.T, s *subject) {
	t.Helper()
	o, _ := s.newObject()
	posted := s.mustAnswer(t, 201, post(s.collection()+"?dryRun=All&fieldManager=poster", o))
	mustOwn(t, "post", posted.obj, ownerEntry{"poster", "Update", s.Version, a.Post})
	for _, path := range slices.Sorted(maps.Keys(a.Defaults)) {
		if got, want := posted.valueAt(path), a.Defaults[path]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v by default, want %v", path, got, want)
		}
	}
	o, path := s.newObject()
	applied := s.mustAnswer(t, 201, patch(path+"?dryRun=All&fieldManager=corpus", "apply-patch+yaml", o))
	mustOwn(t, "apply", applied.obj, ownerEntry{"corpus", "Apply", s.Version, a.Apply})
}

func (a *fieldOwners) testChanged(t *testing.T, s *subject) {
	t.Helper()
	made, path := s.createObject(t)
	value := s.fillPlaceholders(s.Change.Value, s.namespace)
	kept := a.Kept
	if kept == nil {
		kept = a.Post
	}
	// The server writes the status of an APIService meanwhile, so the test replaces the latest version in a dry run.
	eventually(t, func() error {
		replaced := s.do(t, put(path+"?dryRun=All&fieldManager=changer",
			withPlacedValue(t, made, s.Change.Path, value)))
		if replaced.code == 409 {
			made = s.mustAnswer(t, 200, get("%s", path)).obj
			return fmt.Errorf("it was written meanwhile")
		}
		if replaced.code != 200 {
			t.Fatalf("put: %d %s", replaced.code, replaced.textAt("message"))
		}
		mustOwn(t, "put", replaced.obj, ownerEntry{"changer", "Update", s.Version, a.Change},
			ownerEntry{"conformance", "Update", s.Version, kept})
		return nil
	})
	d := wrongObject{Set: map[string]any{s.Change.Path: s.Change.Value}}
	change := d.change(t, made, &wrongSender{subject: s})
	patched := s.mustAnswer(t, 200, patch(path+"?dryRun=All&fieldManager=changer", "merge-patch+json", change))
	mustOwn(t, "patch", patched.obj, ownerEntry{"changer", "Update", s.Version, a.Change},
		ownerEntry{"conformance", "Update", s.Version, kept})
}

// ownerEntry is what one manager owns.
type ownerEntry struct {
	manager, operation, version string
	fields                      object
}

// mustOwn compares the entries of an object, without those of its subresources.
func mustOwn(t *testing.T, way string, o object, want ...ownerEntry) {
	t.Helper()
	want = slices.DeleteFunc(want, func(e ownerEntry) bool { return len(e.fields) == 0 })
	var got []ownerEntry
	list, _ := valueAt(o, "metadata.managedFields").([]any)
	for _, v := range list {
		if valueAt(v, "subresource") != nil {
			continue
		}
		text := func(key string) string { s, _ := valueAt(v, key).(string); return s }
		if text("fieldsType") != "FieldsV1" || text("time") == "" {
			t.Errorf("%s: an entry without type or time: %v", way, v)
		}
		fields, _ := valueAt(v, "fieldsV1").(object)
		got = append(got, ownerEntry{text("manager"), text("operation"), text("apiVersion"), fields})
	}
	by := func(a, b ownerEntry) int { return strings.Compare(a.manager, b.manager) }
	slices.SortFunc(got, by)
	slices.SortFunc(want, by)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: fields are managed by\n%s\nwant\n%s", way, formatEntries(got), formatEntries(want))
	}
}

func formatEntries(list []ownerEntry) string {
	var out []string
	for _, e := range list {
		out = append(out, e.manager+" "+e.operation+" "+e.version+" "+string(encode(e.fields)))
	}
	return strings.Join(out, "\n")
}
