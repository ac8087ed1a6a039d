package conformance

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/kinds"
)

// The check that clusterctl validate uses must accept every object that the server accepts on creation. It must find at
// least nine of ten objects that the server rejects as invalid.
func TestAcceptedObjectsPassTheOfflineCheck(t *testing.T) {
	decoder := serializer.NewCodecFactory(scheme.Scheme).UniversalDeserializer()
	all := map[string]*sample{}
	refused, found := 0, 0
	check := func(s *sample, what string, set map[string]any, code int) {
		on := &subject{sample: s, namespace: "default"}
		o, _ := on.newObject()
		for _, path := range slices.Sorted(maps.Keys(set)) {
			o = withValue(o, path, on.fillPlaceholders(set[path], on.namespace))
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		typed, gvk, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return // a kind that has no type in client-go, or a field of the wrong type
		}
		errs := kinds.CheckNew(*gvk, typed)
		switch {
		case code == 0 && len(errs) > 0:
			t.Errorf("%s, %s: %v", s, what, errs)
		case code == 422:
			if refused++; len(errs) > 0 {
				found++
			}
		}
	}
	for _, s := range readSamples(t) {
		all[s.String()] = s
		check(s, "the sample", nil, 0)
	}
	files, err := filepath.Glob("testdata/corpus/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []differenceCase
		if err := yaml.Unmarshal(text, &cases); err != nil {
			t.Fatal(err)
		}
		for _, d := range cases {
			if len(d.By) > 0 && !slices.Contains(d.By, "post") {
				continue
			}
			code := d.Code
			if code == 422 && d.Reason != "" && d.Reason != "Invalid" {
				continue
			}
			check(all[d.Of], filepath.Base(file), d.Set, code)
		}
	}
	if found*10 < refused*9 {
		t.Errorf("the check finds only %[2]d of the %[1]d objects that the server rejects as invalid", refused, found)
	}
}
