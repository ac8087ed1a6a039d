package load_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clusterctl/hcl/load"
)

const withMachine = `cluster "c" {}
machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
`

// shellCommand returns the command with which data "external" runs a script. The shell reads the script. The kernel
// would refuse to run the new file itself while a concurrent test that starts a process has it open for writing for a
// moment.
func shellCommand(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("[\"sh\", %q]", path)
}

func TestProgramsReadTheQueryAndPrintTexts(t *testing.T) {
	for name, c := range map[string]struct{ script, want, timeout string }{
		"answers":           {`read -r q; case "$q" in *'"zone":"a"'*) echo '{"address": "192.0.2.9"}';; esac`, "192.0.2.9", ""},
		"fails":             {"echo no route >&2; exit 3", "exit status 3: no route", ""},
		"prints no object":  {"echo hello", "did not print a JSON object whose values are texts", ""},
		"prints numbers":    {`echo '{"address": 1}'`, "did not print a JSON object whose values are texts", ""},
		"prints too much":   {"cat >/dev/null; yes | head -c 3000000", "printed more than 1 MiB", ""},
		"does not end":      {"exec sleep 60", "did not end within 1s", "1s"},
		"answers elsewhere": {`echo "{\"address\": \"$(basename "$PWD")\"}"`, "inner", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "inner", "x"), "")
			writeFile(t, filepath.Join(dir, "main.hcl"), withMachine+`data "external" "a" {
  program     = `+shellCommand(t, c.script)+`
  query       = { zone = "a" }
  working_dir = "inner"
  timeout     = "`+cmp.Or(c.timeout, "1m")+`"
}
output "text" { value = data.external.a.result.address }
`)
			configuration, diags := load.Load(load.Options{Path: dir, RunsPrograms: true})
			got := ""
			if diags.HasErrors() {
				got = diags[0].Detail
			} else {
				got = configuration.Cluster.Outputs[0].Value.(string)
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestValidateRunsNoPrograms(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "main.hcl"), withMachine+`data "external" "a" { program = ["touch", "ran"] }
output "text" { value = data.external.a.result.x }
`)
	c, diags := load.Load(load.Options{Path: dir})
	if diags.HasErrors() || len(c.Cluster.Deferred) != 1 || c.Cluster.Deferred[0] != "output.text" {
		t.Errorf("%v, deferred %v", diags, c.Cluster.Deferred)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the program ran")
	}
}

func TestObjectsOfTheClusterAreReadOnRequest(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "main.hcl"), withMachine+`data "object" "first" {
  api_version = "v1"
  kind        = "ConfigMap"
  name        = "first"
}
data "object" "second" {
  api_version = "v1"
  kind        = "ConfigMap"
  name        = data.object.first.object.data.next
  optional    = true
}
output "text" { value = data.object.second.object == null ? "none" : data.object.second.object.data.text }
`)
	first := load.LiveObject{APIVersion: "v1", Kind: "ConfigMap", Name: "first"}
	second := load.LiveObject{APIVersion: "v1", Kind: "ConfigMap", Name: "second"}
	o := load.Options{Path: dir, RunsPrograms: true, LiveObjects: map[load.LiveObject]map[string]any{}}
	c, diags := load.Load(o)
	if diags.HasErrors() || len(c.NeededObjects) != 1 || c.NeededObjects[0] != first {
		t.Fatalf("%v, asked for %v", diags, c.NeededObjects)
	}
	o.LiveObjects[first] = map[string]any{"data": map[string]any{"next": "second"}}
	if c, diags = load.Load(o); diags.HasErrors() || len(c.NeededObjects) != 1 || c.NeededObjects[0] != second {
		t.Fatalf("%v, asked for %v", diags, c.NeededObjects)
	}
	o.LiveObjects[second] = nil
	if c, diags = load.Load(o); diags.HasErrors() || c.Cluster.Outputs[0].Value != "none" {
		t.Errorf("without it: %v", diags)
	}
	o.LiveObjects[second] = map[string]any{"data": map[string]any{"text": "hello"}}
	if c, diags = load.Load(o); diags.HasErrors() || c.Cluster.Outputs[0].Value != "hello" {
		t.Errorf("with it: %v", diags)
	}
	o.LiveObjects[first] = nil
	if _, diags = load.Load(o); !diags.HasErrors() || !strings.Contains(diags[0].Detail, "optional = true") {
		t.Errorf("without the first: %v", diags)
	}
}
