package load_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clusterctl/hcl/load"
)

func TestReportsMatchTheFormatOfTerraform(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.hcl")
	writeFile(t, path, `cluster "c" {}
machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane"]
}
variable "wanted" { default = 3 }
check "enough" {
  assert {
    condition     = length(machine.m.roles) == var.wanted
    error_message = "Too few."
  }
}
output "x" { value = machine.m.nothing }
`)
	c, diags := load.Load(load.Options{Path: path})
	text, err := json.MarshalIndent(c.Report(diags), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(string(text), filepath.Dir(path)+"/", "") + "\n"
	golden := "testdata/report.json"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s", got)
	}
}

func TestReportsWithoutDiagnosticsAreValid(t *testing.T) {
	text, err := json.Marshal((&load.Configuration{}).Report(nil))
	if want := `{"format_version":"1.0","valid":true,"error_count":0,"warning_count":0,"diagnostics":[]}`; err != nil ||
		string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// Generated configurations may have lines and values of megabytes. An error gives the position, and shows only a
// readable part.
func TestErrorsInLongLinesAreShort(t *testing.T) {
	dir := t.TempDir()
	text := "cluster \"home\" {}\nmachine \"a\" {\n  address = \"192.0.2.1\"\n  roles   = [\"control-plane\"]\n  " +
		"labels  = { a = \"" + strings.Repeat("x", 300_000) + "\" }\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "cluster.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, diags := load.Load(load.Options{Path: dir})
	var out strings.Builder
	if err := c.Print(&out, diags, 0, false); err != nil || !strings.Contains(out.String(), "cluster.hcl line 5") ||
		!strings.Contains(out.String(), "must be no more than 63") ||
		out.Len() > 4000 {
		t.Errorf("%v: the error has %d bytes: %.3000s", err, out.Len(), out.String())
	}
	report, err := json.Marshal(c.Report(diags))
	if err != nil || len(report) > 6000 || len(c.Report(diags).Diagnostics) != 1 {
		t.Errorf("%v: the report has %d bytes", err, len(report))
	}
}
