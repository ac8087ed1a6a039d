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

// account lists the owners of the fields of a kind's sample, which package corpus computes from the published schema of
// server-side apply.
type account struct {
	Of       string         `json:"of"`
	Defaults map[string]any `json:"defaults"`
	Post     object         `json:"post"`
	Apply    object         `json:"apply"`
	Change   object         `json:"change"` // of the client that changes one value afterwards
	Kept     object         `json:"kept"`   // of the client that posted the object, after that change; nil: as in Post
}

func readAccounts(t testing.TB) map[string]*account {
	t.Helper()
	data, err := os.ReadFile("testdata/schema/managed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list []*account
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]*account{}
	for _, a := range list {
		all[a.Of] = a
	}
	return all
}

// A client that writes an object of any kind owns the same fields as in Kubernetes, for all ways of writing. The object
// gets its defaults.
// Proves S11, S12.
func TestManagedFieldsOfEveryKindAreUpstreams(t *testing.T) {
	c := shared(t)
	all := readAccounts(t)
	for _, s := range samples(t) {
		if s.Answered || !s.serves("create") {
			continue
		}
		a := all[s.String()]
		if a == nil {
			t.Errorf("the data has no %s", s)
			continue
		}
		t.Run(strings.ReplaceAll(s.String(), "/", "."), func(t *testing.T) {
			t.Parallel()
			on := &subject{sample: s, client: c, ns: fmt.Sprintf("managed%d", numbers.Add(1))}
			c.namespace(t, on.ns)
			a.ofNew(t, on)
			if s.serves("update") && s.serves("patch") {
				a.ofChanged(t, on)
			}
		})
	}
}

func (a *account) ofNew(t *testing.T, s *subject) {
	t.Helper()
	o, _ := s.new()
	posted := s.must(t, 201, post(s.collection()+"?dryRun=All&fieldManager=poster", o))
	mustOwn(t, "post", posted.obj, entry{"poster", "Update", s.Version, a.Post})
	for _, path := range slices.Sorted(maps.Keys(a.Defaults)) {
		if got, want := posted.at(path), a.Defaults[path]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v by default, want %v", path, got, want)
		}
	}
	o, path := s.new()
	applied := s.must(t, 201, patch(path+"?dryRun=All&fieldManager=corpus", "apply-patch+yaml", o))
	mustOwn(t, "apply", applied.obj, entry{"corpus", "Apply", s.Version, a.Apply})
}

func (a *account) ofChanged(t *testing.T, s *subject) {
	t.Helper()
	made, path := s.created(t)
	value := s.filled(s.Change.Value, s.ns)
	kept := a.Kept
	if kept == nil {
		kept = a.Post
	}
	// The server writes the status of an APIService meanwhile, so the test replaces the latest version in a dry run.
	eventually(t, func() error {
		replaced := s.do(t, put(path+"?dryRun=All&fieldManager=changer", placed(t, made, s.Change.Path, value)))
		if replaced.code == 409 {
			made = s.must(t, 200, get("%s", path)).obj
			return fmt.Errorf("it was written meanwhile")
		}
		if replaced.code != 200 {
			t.Fatalf("put: %d %s", replaced.code, replaced.text("message"))
		}
		mustOwn(
			t,
			"put",
			replaced.obj,
			entry{"changer", "Update", s.Version, a.Change},
			entry{"conformance", "Update", s.Version, kept},
		)
		return nil
	})
	d := derived{Set: map[string]any{s.Change.Path: s.Change.Value}}
	change := d.change(t, made, &wrongly{subject: s})
	patched := s.must(t, 200, patch(path+"?dryRun=All&fieldManager=changer", "merge-patch+json", change))
	mustOwn(
		t,
		"patch",
		patched.obj,
		entry{"changer", "Update", s.Version, a.Change},
		entry{"conformance", "Update", s.Version, kept},
	)
}

// entry is what one manager owns.
type entry struct {
	manager, operation, version string
	fields                      object
}

// mustOwn compares the entries of an object, without those of its subresources.
func mustOwn(t *testing.T, way string, o object, want ...entry) {
	t.Helper()
	want = slices.DeleteFunc(want, func(e entry) bool { return len(e.fields) == 0 })
	var got []entry
	list, _ := at(o, "metadata.managedFields").([]any)
	for _, v := range list {
		if at(v, "subresource") != nil {
			continue
		}
		text := func(key string) string { s, _ := at(v, key).(string); return s }
		if text("fieldsType") != "FieldsV1" || text("time") == "" {
			t.Errorf("%s: an entry without type or time: %v", way, v)
		}
		fields, _ := at(v, "fieldsV1").(object)
		got = append(got, entry{text("manager"), text("operation"), text("apiVersion"), fields})
	}
	by := func(a, b entry) int { return strings.Compare(a.manager, b.manager) }
	slices.SortFunc(got, by)
	slices.SortFunc(want, by)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: fields are managed by\n%s\nwant\n%s", way, entries(got), entries(want))
	}
}

func entries(list []entry) string {
	var out []string
	for _, e := range list {
		out = append(out, e.manager+" "+e.operation+" "+e.version+" "+string(encode(e.fields)))
	}
	return strings.Join(out, "\n")
}
