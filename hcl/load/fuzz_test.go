package load

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad reads configurations: whatever is in them becomes values or diagnostics.
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
		path := filepath.Join(t.TempDir(), "c.hcl")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, _ := Load(Options{Path: path}); c == nil {
			t.Error("no configuration to print diagnostics with")
		}
	})
}
