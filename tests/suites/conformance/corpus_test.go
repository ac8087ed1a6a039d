package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// differenceCase is one difference from the sample of a kind, with the answer to it for all ways of sending.
type differenceCase struct {
	Of  string         `json:"of"`  // the sample: apiVersion/Kind
	Set map[string]any `json:"set"` // values at paths of the sample's object; null deletes a value
	// By are the ways of sending, each as a dry run: post, put, patch (a merge patch) and apply. Empty: all.
	By []string `json:"by"`
	// Code is the code of a refusal; 0: accepted.
	Code     int         `json:"code"`
	Reason   string      `json:"reason"` // empty: Invalid
	Message  string      `json:"message"`
	Causes   []wantCause `json:"causes"`   // all of them, in any order
	Warnings []string    `json:"warnings"` // all of them, in any order
	// Makes are values of the answer; null: no value.
	Makes map[string]any `json:"makes"`
}

type wantCause struct {
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

var sendMethods = []string{"post", "put", "patch", "apply"}

// An object with one difference from a valid object is answered as the documentation states, for all ways of sending.
// Proves S11, S12.
func TestCorpus(t *testing.T) {
	c := sharedClient(t)
	kinds := map[string]*sample{}
	for _, s := range readSamples(t) {
		kinds[s.String()] = s
	}
	files, err := filepath.Glob("testdata/corpus/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []differenceCase
		if err := yaml.UnmarshalStrict(data, &cases); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			for i, d := range cases {
				s := kinds[d.Of]
				if s == nil {
					t.Fatalf("no sample is a %q", d.Of)
				}
				on := &subject{sample: s, client: c, namespace: fmt.Sprintf("corpus%d", uniqueNumbers.Add(1))}
				c.createNamespace(t, on.namespace)
				ways := d.By
				if len(ways) == 0 {
					ways = sendMethods
				}
				for _, way := range ways {
					t.Run(fmt.Sprintf("%03d.%s.%s", i, s.Kind, way), func(t *testing.T) { d.checkAnswer(t, on, way) })
				}
			}
		})
	}
}

// send sends the object in one of the ways. It returns the answer, and the code for success.
func (d *differenceCase) send(t *testing.T, s *subject, way string) (answer, int) {
	t.Helper()
	o, path := s.newObject()
	changes := object{}
	for _, at := range slices.Sorted(maps.Keys(d.Set)) {
		o, changes = withValue(o, at, s.fillPlaceholders(d.Set[at], s.namespace)),
			withValue(changes, at, s.fillPlaceholders(d.Set[at], s.namespace))
	}
	switch way {
	case "post":
		return s.do(t, post(s.collection()+"?dryRun=All", o)), 201
	case "apply":
		if n, ok := valueAt(o, "metadata.name").(string); ok {
			path = s.collection() + "/" + n
		}
		return s.do(t, patch(path+"?dryRun=All&fieldManager=corpus", "apply-patch+yaml", o)), 201
	}
	made, path := s.createObject(t)
	if way == "patch" {
		return s.do(t, patch(path+"?dryRun=All", "merge-patch+json", changes)), 200
	}
	o = withValue(withValue(o, "metadata.name", objectName(made)), "metadata.resourceVersion", resourceVersion(made))
	return s.do(t, put(path+"?dryRun=All", o)), 200
}

func (d *differenceCase) checkAnswer(t *testing.T, s *subject, way string) {
	a, code := d.send(t, s, way)
	if d.Code != 0 {
		code = d.Code
	}
	if a.code != code {
		t.Fatalf("%d, want %d: %s", a.code, code, a.textAt("message"))
	}
	if reason := d.Reason; code >= 400 {
		if reason == "" {
			reason = "Invalid"
		}
		if a.textAt("reason") != reason || !strings.Contains(a.textAt("message"), d.Message) {
			t.Errorf("%s: %s\nwant %s: %s", a.textAt("reason"), a.textAt("message"), reason, d.Message)
		}
	}
	if d.Causes != nil {
		d.mustCauses(t, a)
	}
	if want := warningHeaders(d.Warnings); !slices.Equal(want, sortedCopy(a.header.Values("Warning"))) {
		t.Errorf("warnings\n%s\nwant\n%s", strings.Join(sortedCopy(a.header.Values("Warning")), "\n"),
			strings.Join(want, "\n"))
	}
	for path, want := range d.Makes {
		if got := a.valueAt(path); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

func (d *differenceCase) mustCauses(t *testing.T, a answer) {
	t.Helper()
	list, _ := a.valueAt("details.causes").([]any)
	var got []wantCause
	for _, c := range list {
		text := func(key string) string { s, _ := valueAt(c, key).(string); return s }
		got = append(got, wantCause{text("field"), text("reason"), text("message")})
	}
	if len(got) != len(d.Causes) {
		t.Errorf("causes %v\nwant %v", got, d.Causes)
		return
	}
	for _, want := range d.Causes {
		if !slices.ContainsFunc(got, func(c wantCause) bool {
			return c.Field == want.Field && c.Reason == want.Reason && strings.Contains(c.Message, want.Message)
		}) {
			t.Errorf("causes %v\nlack %v", got, want)
		}
	}
}

func sortedCopy(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// warningHeaders returns warnings in the format of the header.
func warningHeaders(texts []string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, `299 - "`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)+`"`)
	}
	return sortedCopy(out)
}

// The status of a volume contains the time of the last phase change, unless the client that writes the status sets it.
// Proves S11.
func TestVolumePhaseIsTimed(t *testing.T) {
	c := sharedClient(t)
	o := object{
		"metadata": object{"name": "timed"},
		"spec": object{
			"capacity":    object{"storage": "1Gi"},
			"accessModes": []any{"ReadWriteOnce"},
			"hostPath":    object{"path": "/a"},
		},
	}
	made := c.mustAnswer(t, 201, post("/api/v1/persistentvolumes", o))
	if made.textAt("status.lastPhaseTransitionTime") == "" {
		t.Fatalf("a new volume: %v", made.valueAt("status"))
	}
	const status = "/api/v1/persistentvolumes/timed/status"
	answer := c.mustAnswer(t, 200, patch(status, "merge-patch+json",
		object{"status": object{"phase": "Available", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}}))
	if answer.textAt("status.lastPhaseTransitionTime") != "2020-01-01T00:00:00Z" {
		t.Errorf("the status is %v", answer.valueAt("status"))
	}
	kept := c.mustAnswer(t, 200, patch(status, "merge-patch+json",
		object{"status": object{"message": "m", "lastPhaseTransitionTime": nil}}))
	if kept.textAt("status.lastPhaseTransitionTime") != "2020-01-01T00:00:00Z" {
		t.Errorf("the same phase: %v", kept.valueAt("status"))
	}
	changed := c.mustAnswer(t, 200, patch(status, "merge-patch+json", object{"status": object{"phase": "Failed"}}))
	if at := changed.textAt("status.lastPhaseTransitionTime"); at == "" || at == "2020-01-01T00:00:00Z" {
		t.Errorf("another phase: %v", changed.valueAt("status"))
	}
}
