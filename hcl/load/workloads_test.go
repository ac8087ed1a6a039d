package load_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clusterctl/hcl/load"
)

// loadBelow loads a configuration in the folder "app" of a repository.
func loadBelow(t *testing.T, text string) (*load.Configuration, error) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "repository")
	for name, content := range map[string]string{"repository/app/a.hcl": text, "repository/shared/motd": "shared",
		"secret": "outside"} {
		path := filepath.Join(filepath.Dir(root), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, diags := load.Load(load.Options{Path: filepath.Join(root, "app"), Root: root})
	if diags.HasErrors() {
		return c, diags
	}
	return c, nil
}

func TestPathsBelowARootDoNotLeaveIt(t *testing.T) {
	for expression, want := range map[string]string{
		`file("../shared/motd")`:                      "shared",
		`file("/shared/motd")`:                        "shared",
		`file("${path.module}/../shared/motd")`:       "shared",
		`file("../../../../../../shared/motd")`:       "shared",
		`templatefile("/shared/motd", {})`:            "shared",
		`path.module`:                                 "/app",
		`path.root`:                                   "/app",
		`join(",", fileset("/shared", "*"))`:          "motd",
		`file("/secret")`:                             "no such file",
		`file("../../secret")`:                        "no such file",
		`tostring(fileexists("../../secret"))`:        "false",
		`join(",", fileset("..", "../*"))`:            "leads out of the repository",
		`join(",", fileset("..", "{.}{.}/sec*"))`:     "leads out of the repository",
		`join(",", fileset("..", "{.,x}{.,x}/sec*"))`: "leads out of the repository",
		`filesha256("../../secret")`:                  "no such file",
		`abspath(".")`:                                "not available",
		`timestamp()`:                                 "not available",
	} {
		c, err := loadBelow(t, "object \"v1\" \"ConfigMap\" \"x\" {\n  data = { got = "+expression+" }\n}\n")
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case len(c.Cluster.Objects) == 1:
			data, _ := c.Cluster.Objects[0].Content["data"].(map[string]any)
			got, _ = data["got"].(string)
		}
		if !strings.Contains(got, want) || strings.Contains(got, "outside") {
			t.Errorf("%s is %q, want %q", expression, got, want)
		}
	}
}

func TestAConfigurationBelowARootHasObjectsOnly(t *testing.T) {
	const workload = "workload \"web\" {\n  container \"web\" {\n    image = \"x\"\n  }\n}\n"
	if c, err := loadBelow(t, workload); err != nil || len(c.Cluster.Workloads) != 1 {
		t.Errorf("a workload without a cluster: %v", err)
	}
	for text, want := range map[string]string{
		"cluster \"c\" {}\n":                  "Block of a cluster",
		"removed {\n  from = workload.x\n}\n": "Block of a cluster",
		workload + strings.Replace(workload, "\"web\" {", "\"w\" {\n  name = \"web\"", 1): "Duplicate workload",
	} {
		if _, err := loadBelow(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", text, err, want)
		}
	}
}
