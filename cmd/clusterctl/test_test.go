package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runTests runs clusterctl test in a folder with these files.
func runTests(t *testing.T, files map[string]string) (int, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"test", dir})
	code := runCommand(t.Context(), root)
	return code, strings.ReplaceAll(out.String(), dir+"/", "")
}

const configurationUnderTest = `cluster "c" {}
variable "nodes" {
  type    = map(string)
  default = { a = "192.0.2.11" }
  validation {
    condition     = length(var.nodes) > 0
    error_message = "None."
  }
}
data "external" "zone" { program = ["false"] }
machine "control" {
  address = "192.0.2.1"
  roles   = ["control-plane"]
}
machine "node" {
  for_each = var.nodes
  address  = each.value
  roles    = ["node"]
  labels   = { zone = data.external.zone.result.zone }
}
object "v1" "ConfigMap" "motd" {
  data = { text = join(",", keys(var.nodes)) }
}
check "spare" {
  assert {
    condition     = length(var.nodes) < 3
    error_message = "Many."
  }
}
output "nodes" { value = [for n in machine.node : n.name] }
`

const overrideText = `override_data {
  target = data.external.zone
  values = { result = { zone = "a" } }
}
`

func TestTestRunsPlanAndApplyOnSimulatedMachines(t *testing.T) {
	code, out := runTests(
		t,
		map[string]string{"main.hcl": configurationUnderTest, "tests/grow.clustertest.hcl": overrideText + `
run "first" {
  assert {
    condition     = plan.machines["machine.node[\"a\"]"] == "create" && output.nodes == ["node-a"]
    error_message = "The machines are ${jsonencode(plan.machines)}."
  }
  assert {
    condition     = machine.node["a"].labels.zone == "a"
    error_message = "The zone is not what was said."
  }
}
run "again" {
  command = plan
  assert {
    condition     = plan.empty
    error_message = "There is something to do: ${jsonencode(plan)}."
  }
}
run "grow" {
  variables { nodes = { a = "192.0.2.11", (run.first.nodes[0]) = "192.0.2.12" } }
  assert {
    condition     = plan.machines["machine.node[\"node-a\"]"] == "create" && plan.objects["ConfigMap motd"] == "change"
    error_message = "Planned: ${jsonencode(plan)}."
  }
}
run "shrink" {
  assert {
    condition     = plan.machines["machine.node[\"node-a\"]"] == "remove"
    error_message = "Planned: ${jsonencode(plan)}."
  }
}
run "refused" {
  command         = plan
  variables       { nodes = {} }
  expect_failures = [var.nodes]
}
run "warned" {
  command         = plan
  variables       { nodes = { a = "192.0.2.11", b = "192.0.2.12", c = "192.0.2.13" } }
  expect_failures = [check.spare]
}
`},
	)
	if code != 0 || !strings.Contains(out, "6 passed, 0 failed.") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestFailedTestRunsReportTheirLine(t *testing.T) {
	for name, c := range map[string]struct{ run, want string }{
		"an assertion":           {`assert { condition = output.nodes == ["x"], error_message = "The nodes are ${join(" ", output.nodes)}." }`, "The nodes are node-a."},
		"a failure not expected": {"variables { nodes = {} }", "None."},
		"a check not expected": {"command = plan\n  variables { nodes = { a = \"192.0.2.11\", b = " +
			"\"192.0.2.12\", c = \"192.0.2.13\" } }", "Many."},
		"a failure that is missing": {"command = plan\n  expect_failures = [check.spare]", "one should not"},
		"an unknown variable":       {"variables { nods = {} }", `no variable "nods"`},
		"an unknown command":        {"command = destroy", "plan or apply"},
	} {
		t.Run(name, func(t *testing.T) {
			run := strings.Replace(c.run, ", error_message", "\n error_message", 1)
			run = strings.Replace(run, "assert {", "assert {\n", 1)
			run = strings.Replace(run, `." }`, ".\"\n}", 1)
			code, out := runTests(
				t,
				map[string]string{
					"main.hcl":          configurationUnderTest,
					"a.clustertest.hcl": overrideText + "run \"x\" {\n  " + run + "\n}\n",
				},
			)
			if code != 1 || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

func TestFoldersWithoutTestsAreAnError(t *testing.T) {
	if code, out := runTests(t, map[string]string{"main.hcl": configurationUnderTest}); code != 1 ||
		!strings.Contains(out, "there is no run") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
