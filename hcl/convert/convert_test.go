package convert_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"clusterctl/hcl/convert"
	"clusterctl/hcl/load"
)

// loadObjects returns the objects that a text declares, as JSON by identity.
func loadObjects(t interface {
	Helper()
	Fatalf(string, ...any)
}, dir string, text []byte) map[string]string {
	t.Helper()
	path := filepath.Join(dir, "converted.hcl")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatalf("write the configuration: %v", err)
	}
	c, diags := load.Load(load.Options{Path: path, Root: dir})
	if diags.HasErrors() {
		t.Fatalf("load: %v\n%s", diags, text)
	}
	objects := map[string]string{}
	for _, o := range c.Cluster.Objects {
		id, text := encode(t, o.Content)
		objects[id] = text
	}
	return objects
}

func encode(t interface{ Fatalf(string, ...any) }, content map[string]any) (id, text string) {
	metadata, _ := content["metadata"].(map[string]any)
	out, err := json.Marshal(content)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	name, _ := json.Marshal([]any{content["apiVersion"], content["kind"], metadata["namespace"], metadata["name"]})
	return string(name), string(out)
}

// compare checks that a configuration declares exactly the given objects.
func compare(t interface {
	Helper()
	Fatalf(string, ...any)
}, dir string, objects []convert.Object) {
	t.Helper()
	text, problems := convert.HCL(objects, nil)
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	got := loadObjects(t, dir, text)
	for _, o := range objects {
		id, want := encode(t, o.Content)
		if got[id] != want {
			t.Fatalf("object %s becomes\n%s\ninstead of\n%s\nfrom\n%s", id, got[id], want, text)
		}
	}
	if len(got) != len(objects) {
		t.Fatalf("%d objects become %d", len(objects), len(got))
	}
}

func TestObjectsSurviveTheConversionToHCL(t *testing.T) {
	text, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, problems := convert.ReadYAML("objects.yaml", text)
	if len(problems) > 0 || len(objects) != 9 {
		t.Fatalf("%d objects, %v", len(objects), problems)
	}
	compare(t, t.TempDir(), objects)
}

func TestManifestsOfTheRepositorySurviveTheConversion(t *testing.T) {
	found := 0
	for _, root := range []string{"../../examples", "../../docs", "../../tests/suites", "../../cmd", "../../hcl"} {
		err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if ext := filepath.Ext(path); err != nil || e.IsDir() || ext != ".yaml" && ext != ".yml" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			objects, _ := convert.ReadYAML(path, text)
			var valid []convert.Object
			for _, o := range objects {
				if _, problems := convert.HCL([]convert.Object{o}, nil); len(problems) == 0 {
					valid = append(valid, o)
				}
			}
			_, problems := convert.HCL(valid, nil)
			if len(problems) == 0 && len(valid) > 0 {
				found += len(valid)
				compare(t, t.TempDir(), valid)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 5 {
		t.Errorf("%d objects were found, there are more", found)
	}
}

func TestAnyValueSurvivesTheConversionToHCL(t *testing.T) {
	dir := t.TempDir()
	parts := rapid.SampledFrom([]string{"${", "%{", "$", "$$", "%", "%%", "{", "}", "\\", "\"", "\n", "\t", "\r", "EOT",
		"EOT\n", "a", " ", "é", "\u0000", "\u200b", "\U0001f600", "~}", "#", "//", "line\n", "for", "<<EOT"})
	texts := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(parts, 0, 8).Draw(t, "t"), "") })
	scalars := rapid.OneOf(rapid.Map(texts, func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(i int64) any { return i }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Float64Range(0.1, 0.9), func(f float64) any { return f }), rapid.Just[any](nil))
	lists := rapid.Map(rapid.SliceOfN(scalars, 0, 4), func(l []any) any { return l })
	maps := rapid.Map(rapid.MapOfN(texts, rapid.OneOf(scalars, lists), 0, 4), func(m map[string]any) any { return m })
	nested := rapid.Map(rapid.SliceOfN(rapid.OneOf(scalars, lists, maps), 0, 4), func(l []any) any { return l })
	rapid.Check(t, func(t *rapid.T) {
		spec := rapid.MapOfN(texts, rapid.OneOf(scalars, lists, maps, nested), 0, 6).Draw(t, "spec")
		content := map[string]any{"apiVersion": "example.org/v1", "kind": "Thing", "spec": spec,
			"metadata": map[string]any{"name": "thing", "namespace": "shop"}}
		compare(t, dir, []convert.Object{{Content: content, File: "a.yaml", Line: 1}})
		text, err := convert.YAML([]map[string]any{content})
		if err != nil {
			t.Fatalf("write YAML: %v", err)
		}
		back, problems := convert.ReadYAML("a.yaml", text)
		_, want := encode(t, content)
		if len(problems) > 0 || len(back) != 1 {
			t.Fatalf("read %q: %v", text, problems)
		}
		if _, got := encode(t, back[0].Content); got != want {
			t.Fatalf("%s becomes %s by %s", want, got, text)
		}
	})
}

func TestWhatCannotBeConvertedIsListedWithItsLine(t *testing.T) {
	text := `apiVersion: v1
kind: ConfigMap
metadata: {generateName: a}
---
# comment
a: [
---
- 1
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
dat: {}
---
apiVersion: v1
kind: Namespace
metadata: {name: a, namespace: b}
status: {phase: Active}
---
apiVersion: example.org/v1
kind: A
metadata: {name: a}
count: 1
--- {apiVersion: v1, kind: Namespace, metadata: {name: a}}
`
	objects, problems := convert.ReadYAML("a.yaml", []byte(text))
	out, more := convert.HCL(objects, nil)
	problems = append(problems, more...)
	convert.SortProblems(problems)
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	for i, want := range []string{"a.yaml:1: ConfigMap: an object needs metadata.name", "a.yaml:6: document: ",
		"a.yaml:8: document: it is not an object", "a.yaml:10: ConfigMap a: v1 ConfigMap: unknown field",
		"a.yaml:15: Namespace b/a: status is left out", "a.yaml:15: Namespace b/a: metadata.namespace is left out",
		"a.yaml:20: A a: the field \"count\"", "a.yaml:24: Namespace a: the object is declared twice"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d is not %q:\n%s", i+1, want, strings.Join(lines, "\n"))
		}
	}
	if want := "object \"v1\" \"Namespace\" \"a\" {\n}\n"; string(out) != want {
		t.Errorf("the text is %q", out)
	}
}

func TestObjectsOfAnotherProgramKeepTheirDigits(t *testing.T) {
	c, err := convert.ReadConverted([]byte(`{"objects": [{"Content": {"apiVersion": "v1", "kind": "A",
		"metadata": {"name": "a"}, "spec": {"large": 9007199254740993, "half": 0.5}}, "File": "a.yaml", "Line": 2}],
		"problems": [{"file": "a.yaml", "line": 3, "subject": "b", "message": "c"}]}`))
	if err != nil || len(c.Objects) != 1 || c.Objects[0].Line != 2 {
		t.Fatalf("%v, %v", c, err)
	}
	if len(c.Problems) != 1 || c.Problems[0].String() != "a.yaml:3: b: c" {
		t.Errorf("problems %v", c.Problems)
	}
	spec := c.Objects[0].Content["spec"].(map[string]any)
	if spec["large"] != int64(9007199254740993) || spec["half"] != 0.5 {
		t.Errorf("spec %v", spec)
	}
	if _, err := convert.ReadConverted([]byte("{")); err == nil {
		t.Error("a wrong text is read")
	}
}

func FuzzReadYAML(f *testing.F) {
	for _, seed := range []string{"a: 1", "--- a\n...\n", "a: &a [*a]", "kind: List\nitems: [{items: []}]",
		"%YAML 1.2\n---\n", "\ufeff{{ .Values }}", "? [a]: b",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: \"${b}\"}\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, _ := convert.ReadYAML("a.yaml", text)
		out, _ := convert.HCL(objects, nil)
		if len(objects) == 0 && len(out) > 0 {
			t.Errorf("no object becomes %q", out)
		}
	})
}
