package data_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clusterctl/hcl/data"
)

func TestPatternsMatchAsTerraformsFilesetDoes(t *testing.T) {
	base := filepath.Join(t.TempDir(), "[a]{b}*")
	for _, name := range []string{"a.yaml", "b.yaml", "c.yml", "é.yaml", "a[1].yaml", "{x}.yaml", "star*.yaml",
		"sub/a.yaml", "sub/deep/a.yaml", "sub/deep/.hidden"} {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(".", filepath.Join(base, "sub", "loop")); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"*.yaml":                    "a.yaml a[1].yaml b.yaml star*.yaml {x}.yaml é.yaml",
		"?.yaml":                    "a.yaml b.yaml é.yaml",
		"[a-b].yaml":                "a.yaml b.yaml",
		"[^a].yaml":                 "b.yaml é.yaml",
		"[!a].yaml":                 "b.yaml é.yaml",
		"{a,b}.yaml":                "a.yaml b.yaml",
		"{a,{b,c}}.y{a,}ml":         "a.yaml b.yaml c.yml",
		"{a.yaml,sub/*.y*}":         "a.yaml sub/a.yaml",
		"sub/a.yaml":                "sub/a.yaml",
		"./sub//a.yaml":             "sub/a.yaml",
		"sub/../a.yaml":             "a.yaml",
		"*/a.yaml":                  "sub/a.yaml",
		"**/a.yaml":                 "a.yaml sub/a.yaml sub/deep/a.yaml",
		"sub/**/a.yaml":             "sub/a.yaml sub/deep/a.yaml",
		"**/deep/**":                "sub/deep sub/deep/.hidden sub/deep/a.yaml",
		"**/**/a.yaml":              "a.yaml sub/a.yaml sub/deep/a.yaml",
		"a[1].yaml":                 "a[1].yaml", // a1.yaml would match too
		`a\[1\].yaml`:               "a[1].yaml",
		"{x}.yaml":                  "{x}.yaml",
		`star\*.yaml`:               "star*.yaml",
		"a.yaml/*":                  "",
		"missing/*.yaml":            "",
		"sub/loop/deep/a.y*":        "sub/loop/deep/a.yaml",
		"[":                         "error",
		"{a,b.yaml":                 "error",
		`a\`:                        "error",
		"[b-a].yaml":                "error",
		strings.Repeat("{a,b}", 12): "error",
	} {
		paths, err := data.MatchPattern(base, pattern)
		var got []string
		for _, p := range paths {
			rel, relErr := filepath.Rel(base, p)
			if relErr != nil {
				t.Fatal(relErr)
			}
			got = append(got, rel)
		}
		wanted := strings.Fields(want)
		if want == "error" {
			wanted = nil
		}
		if !slices.Equal(got, wanted) || (err != nil) != (want == "error") {
			t.Errorf("%q: %q, %v; want %q", pattern, got, err, want)
		}
	}
}
