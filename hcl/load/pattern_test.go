package load_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"clusterctl/hcl/load"
)

// oddNames are folder names with characters that have a meaning in patterns.
var oddNames = []string{"plain", "[prod]", "[", "a*b", "what?", "{x,y}", `back\slash`, "**", "space here"}

const oddConfiguration = `
cluster "home" {}
variable "nodes" {
  type    = set(string)
  default = []
}
machine "control" {
  address = "10.0.0.1"
  roles   = ["control-plane", "node"]
}
machine "node" {
  for_each = var.nodes
  address  = each.key
  roles    = ["node"]
}
manifests "relative" { files = ["maps/*.yaml"] }
manifests "folder"   { files = ["more"] }
manifests "absolute" { files = ["${path.module}/one/*.yaml"] }
manifests "listed"   { files = [for f in fileset(path.module, "two/*.yaml") : "${path.root}/${f}"] }
module "inner" { source = "./[mod]" }
output "files" { value = fileset(path.module, "**/*.yaml") }
`

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func oddFiles() map[string]string {
	configMap := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: default}\n"
	}
	return map[string]string{
		"cluster.hcl":                  oddConfiguration,
		"a.auto.clustervars":           `nodes = ["10.0.0.2"]`,
		"b.auto.clustervars.json":      `{"nodes": ["10.0.0.2", "10.0.0.3"]}`,
		"maps/a.yaml":                  configMap("a"),
		"more/b.yaml":                  configMap("b"),
		"one/c.yaml":                   configMap("c"),
		"two/d[1].yaml":                configMap("d"),
		"[mod]/module.hcl":             `manifests "own" { files = ["e?.yaml", "${path.module}/f.yaml"] }`,
		"[mod]/e1.yaml":                configMap("e"),
		"[mod]/f.yaml":                 configMap("f"),
		"some" + load.TestExtension:    `run "one" {}`,
		"tests/x" + load.TestExtension: `run "two" {}`,
	}
}

func TestFolderNamesAreNotPatterns(t *testing.T) {
	for _, name := range oddNames {
		t.Run(name, func(t *testing.T) {
			// The folder has a sibling that its name would match as a pattern.
			above := t.TempDir()
			dir := filepath.Join(above, name)
			writeFiles(t, filepath.Join(above, "p"), map[string]string{"x.auto.clustervars": `nodes = []`})
			writeFiles(t, dir, oddFiles())
			for _, path := range []string{dir, "."} {
				if path == "." {
					t.Chdir(dir)
				}
				c, diags := load.Load(load.Options{Path: path})
				if diags.HasErrors() {
					t.Fatal(diags)
				}
				if got := len(c.Cluster.Machines); got != 3 {
					t.Errorf("%s: %d machines, not 3: values of *%s are missing", path, got, load.AutoExtension)
				}
				var names []string
				for _, o := range c.Cluster.Objects {
					names = append(names, o.Content["metadata"].(map[string]any)["name"].(string))
				}
				slices.Sort(names)
				if want := []string{"a", "b", "c", "d", "e", "f"}; !slices.Equal(names, want) {
					t.Errorf("%s: objects %v, not %v", path, names, want)
				}
				if got := c.Outputs.GetAttr("files").LengthInt(); got != 6 {
					t.Errorf("%s: fileset has %d files, not 6", path, got)
				}
				tests, diags, _ := load.LoadTests(path)
				if diags.HasErrors() || len(tests) != 2 {
					t.Errorf("%s: %d tests, not 2: %v", path, len(tests), diags)
				}
				changed, err := load.Format(path)
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := changed[filepath.Join(path, "a.auto.clustervars")]; ok {
					t.Errorf("%s: a file in the usual layout is changed", path)
				}
			}
		})
	}
}

func TestUnreadableVariableFoldersAreAnError(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"cluster.hcl": oddConfiguration})
	if err := os.Symlink("nowhere", filepath.Join(dir, "x.auto.clustervars")); err != nil {
		t.Fatal(err)
	}
	if _, diags := load.Load(load.Options{Path: dir}); !diags.HasErrors() {
		t.Error("a file of variables that leads nowhere is left out")
	}
}
