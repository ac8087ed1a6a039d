package load_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clusterctl/hcl/load"
)

func TestAReportHasTheShapeOfTerraforms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.hcl")
	write(t, path, `cluster "c" {}
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

func TestAReportOfNothingIsValid(t *testing.T) {
	text, err := json.Marshal((&load.Configuration{}).Report(nil))
	if want := `{"format_version":"1.0","valid":true,"error_count":0,"warning_count":0,"diagnostics":[]}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}
