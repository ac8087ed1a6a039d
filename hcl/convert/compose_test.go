package convert_test

import (
	"os"
	"strings"
	"testing"

	"clusterctl/hcl/convert"
)

// readProject returns the project in a file of testdata.
func readProject(t *testing.T, path string) convert.Compose {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := convert.ReadCompose(text)
	if err != nil {
		t.Fatal(err)
	}
	c.File = "compose.yaml"
	return c
}

func TestAComposeProjectBecomesTheExpectedObjects(t *testing.T) {
	objects, problems := readProject(t, "testdata/compose.json").Objects()
	var contents []map[string]any
	for _, o := range objects {
		contents = append(contents, o.Content)
	}
	got, err := convert.YAML(contents)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/compose.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the objects are\n%s", got)
	}
	compare(t, t.TempDir(), objects)
	var lines []string
	convert.SortProblems(problems)
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	text := strings.Join(lines, "\n") + "\n"
	for _, want := range []string{"services.debug: its profiles are not active", "services.web.ulimits: it has no",
		"services.web.depends_on: it has no", "services.web.volumes: /src is a path of this machine",
		"services.web.deploy.update_config: it has no", "services.web.healthcheck.start_interval: it has no",
		"networks.back.driver: it has no", "models: it has no", "services.web.environment: the variable UNSET",
		"services.agent.restart: a DaemonSet always restarts", "volumes.shared: it is external"} {
		if !strings.Contains(text, "compose.yaml:1: "+want) {
			t.Errorf("no line is %q:\n%s", want, text)
		}
	}
	if len(problems) != 11 {
		t.Errorf("%d problems:\n%s", len(problems), text)
	}
}
