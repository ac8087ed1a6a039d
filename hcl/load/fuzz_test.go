package load

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad loads arbitrary configurations in both syntaxes. Each becomes values, or diagnostics that can be printed.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`cluster "c" { pod_cidrs = ["10.244.0.0/16"] }
variable "n" { type = number
  default = 3 }
machine "m" {
  for_each = toset(["10.0.0.1"])
  address = each.key
  roles = ["control-plane", "node"]
}
workload "w" {
  container "a" { image = "i:${var.n}" }
}`))
	f.Add([]byte(`locals { a = local.b
 b = local.a }`))
	f.Add([]byte(`output "x" { value = [for k, v in { a = 1 } : "${k}=${v}" if v > 0] }`))
	for _, pattern := range []string{"testdata/corpus/*.hcl", "testdata/corpus/*.json",
		"testdata/corpus/module*/main.hcl"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	examples, err := filepath.Glob("../../examples/*/*.hcl")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range examples {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		name := "c" + Extension
		if len(text) > 0 && text[0] == '{' {
			name = "c" + JSONExtension
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, diags := Load(Options{Path: path})
		if c == nil {
			t.Fatal("no configuration to print diagnostics with")
		}
		if c.Report(diags).Valid == diags.HasErrors() {
			t.Error("the report says something else")
		}
		if err := c.Print(io.Discard, diags, 0, false); err != nil {
			t.Error(err)
		}
	})
}
