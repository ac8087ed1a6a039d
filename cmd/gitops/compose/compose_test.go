package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"clusterctl/hcl/convert"
	"clusterctl/hcl/load"
	provision "clusterctl/provision/workload"
)

// TestMain runs the command itself if the test binary is started as its process, which restricts itself for good.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		if err := Run(context.Background(), os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	logrus.SetOutput(io.Discard) // warnings of the loader
	os.Exit(m.Run())
}

// run runs the command with a variable in its environment.
func run(t *testing.T, args ...string) (convert.Converted, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{Command}, args...)...)
	var out, problems bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"HOST=from-environment"}, &out, &problems
	if err := cmd.Run(); err != nil {
		return convert.Converted{}, problems.String()
	}
	c, err := convert.ReadConverted(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return c, problems.String()
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// loadExamples loads the projects of testdata, in this process.
func loadExamples(t *testing.T) (list []*source) {
	t.Helper()
	files, err := filepath.Glob("testdata/*/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		absolute, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := loadProject(t.Context(), options{names: []string{file}, files: []string{absolute}, hostPaths: true})
		if err != nil {
			t.Errorf("load: %v", err)
			continue
		}
		list = append(list, s)
	}
	return list
}

// TestTwentyProjectsBecomeBlocksWithTheSameObjects converts to HCL as clusterctl convert does, and back.
func TestTwentyProjectsBecomeBlocksWithTheSameObjects(t *testing.T) {
	examples := loadExamples(t)
	if len(examples) < 20 {
		t.Fatalf("%d projects were loaded", len(examples))
	}
	for _, example := range examples {
		name := example.names[0]
		text, err := json.Marshal(example.convert())
		if err != nil {
			t.Fatal(err)
		}
		c, err := convert.ReadConverted(text)
		if err != nil {
			t.Fatal(err)
		}
		blocks, problems := convert.HCL(c.Objects, declared)
		if len(problems) > 0 || len(c.Objects) < 2 {
			t.Errorf("%s: %d objects, of which cannot be declared: %v", name, len(c.Objects), problems)
		}
		if strings.Contains(name, "01-web") && !strings.Contains(string(blocks), "\nworkload \"web\" {\n") {
			t.Errorf("a simple service is no workload block:\n%s", blocks)
		}
		back, err := declared(string(blocks))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, blocks)
			continue
		}
		want := map[string]string{}
		for _, o := range c.Objects {
			id, text := identify(t, o.Content)
			want[id] = text
		}
		for _, o := range back {
			id, got := identify(t, o)
			if got != want[id] {
				t.Errorf("%s: %s becomes\n%s\ninstead of\n%s", name, id, got, want[id])
			}
			delete(want, id)
		}
		for id := range want {
			t.Errorf("%s: %s is lost", name, id)
		}
		for _, p := range c.Problems {
			if p.File != name || p.Line < 1 || p.Message == "" || p.Subject == "" {
				t.Errorf("a problem has no place: %+v", p)
			}
		}
	}
}

// declared returns the objects that the text of a configuration declares, as clusterctl plan reads it.
func declared(text string) (objects []map[string]any, err error) {
	const path = "/converted" + load.Extension
	c, diags := load.Load(load.Options{Path: path, Root: "/", Texts: map[string]string{path: text},
		WorkloadObjects: provision.ObjectsOf})
	if len(diags) > 0 {
		return nil, diags
	}
	for _, o := range c.Cluster.Objects {
		objects = append(objects, o.Content)
	}
	for _, w := range c.Cluster.Workloads {
		list, err := provision.ObjectsOf(w)
		if err != nil {
			return nil, err
		}
		objects = append(objects, list...)
	}
	return objects, nil
}

func identify(t *testing.T, content map[string]any) (id, text string) {
	t.Helper()
	metadata, _ := content["metadata"].(map[string]any)
	out, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(content["kind"], " ", metadata["namespace"], "/", metadata["name"]), string(out)
}

func TestFilesAreMergedAndInterpolated(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".env", "TAG=2\n")
	write(t, dir, "a.conf", "listen 80\n")
	first := write(t, dir, "compose.yaml", `services:
  web: {image: "nginx:${TAG}", environment: {A: "1", HOST: "${HOST:-none}"}, configs: [a]}
  debug: {image: busybox, profiles: [debug]}
configs: {a: {file: ./a.conf}}
`)
	second := write(t, dir, "override.yaml", "services: {web: {environment: {A: \"2\"}}}\n")
	c, problems := run(t, first, second)
	text := fmt.Sprint(c.Objects)
	for _, want := range []string{"image:nginx:2", "name:A value:2", "name:HOST value:none", "content:listen 80"} {
		if !strings.Contains(text, want) {
			t.Errorf("the objects have no %s: %s%s", want, text, problems)
		}
	}
	if len(c.Problems) != 1 || c.Problems[0].Subject != "services.debug.profiles" || c.Problems[0].Line != 3 {
		t.Errorf("problems %v", c.Problems)
	}
	c, _ = run(t, write(t, t.TempDir(), "compose.yaml", "services: {a: {image: \"b:1$UNSET\"}}\n"))
	if len(c.Problems) != 1 || c.Problems[0].Subject != "$UNSET" {
		t.Errorf("problems %v", c.Problems)
	}
	c, problems = run(t, "--env", "--profile=debug", first)
	if text := fmt.Sprint(c.Objects); !strings.Contains(text, "value:from-environment") ||
		!strings.Contains(text, "busybox") {
		t.Errorf("--env and --profile have no effect: %s%s", text, problems)
	}
}

func TestFilesOutsideOfTheFolderAreNotRead(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	target := write(t, outside, "outside.yaml", "services: {a: {image: b}}\n")
	if err := os.Symlink(target, filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "part.yaml", "services: {a: {image: b}}\n")
	for _, text := range []string{"include: [" + target + "]\n", "include: [link.yaml]\n",
		"include: [{path: part.yaml, env_file: " + target + "}]\n",
		"services: {a: {extends: {file: " + target + ", service: a}}}\n"} {
		_, problems := run(t, write(t, dir, "compose.yaml", text))
		if !strings.Contains(problems, "permission denied") {
			t.Errorf("%s: the error is %q", text, problems)
		}
	}
	c, problems := run(t, write(t, dir, "compose.yaml", "services: {a: {image: b, configs: [c], label_file: "+target+
		", env_file: "+target+"}}\nconfigs: {c: {file: "+target+"}}\n"))
	if len(c.Problems) != 3 {
		t.Errorf("problems %v, %s", c.Problems, problems)
	}
	for _, p := range c.Problems {
		if !strings.Contains(p.Message, "permission denied") {
			t.Errorf("%v", p)
		}
	}
}

func TestWrongProjectsAreErrorsWithTheirPlace(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("x-0: &x0 [a, a, a, a, a, a, a, a]\n")
	for i := range 12 {
		aliases := strings.Repeat(fmt.Sprintf("*x%d, ", i), 8)
		fmt.Fprintf(&bomb, "x-%d: &x%d [%s]\n", i+1, i+1, strings.TrimSuffix(aliases, ", "))
	}
	bomb.WriteString("services: {a: {image: b}}\n")
	for name, row := range map[string]struct{ text, want string }{
		"a bomb of anchors":      {bomb.String(), "compose.yaml"},
		"a cycle of extensions":  {"services:\n  a: {extends: b}\n  b: {extends: a}\n", "ircular"},
		"an inclusion of itself": {"include: [compose.yaml]\nservices: {a: {image: b}}\n", "cycle"},
		"a remote inclusion":     {"include: [\"https://example.org/a.yaml\"]\n", "nothing is fetched"},
		"a repository":           {"include: [\"https://example.org/a.git#main\"]\n", "nothing is fetched"},
		"a remote base":          {"services: {a: {extends: {file: \"oci://a\", service: b}}}\n", "nothing is fetched"},
		"a wrong variable":       {"services:\n  a:\n    image: \"${A\"\n", "compose.yaml:3: "},
		"a required variable":    {"services:\n  a:\n    image: \"${A:?set A}\"\n", "set A"},
		"a wrong attribute":      {"services:\n  a:\n    image: b\n    imagee: c\n", "compose.yaml:4: "},
		"a wrong type":           {"services:\n  a:\n    image: b\n    tty: []\n", "compose.yaml:4: "},
		"an unknown volume":      {"services:\n  a:\n    image: b\n    volumes: [\"data:/v\"]\n", "undefined volume"},
		"wrong YAML":             {"services:\n  a: {\n", "compose.yaml:"},
		"a large file":           {"# " + strings.Repeat("a", maxFile), "compose.yaml has more than"},
		"no mapping":             {"[]\n", "mapping"},
	} {
		c, problems := run(t, write(t, t.TempDir(), "compose.yaml", row.text))
		if !strings.Contains(problems, row.want) || len(problems) > 2000 || len(c.Objects) > 0 {
			t.Errorf("%s: the error is %q, want %q", name, problems, row.want)
		}
	}
}

func TestALargeRangeOfPortsIsListed(t *testing.T) {
	c, problems := run(t, write(t, t.TempDir(), "compose.yaml", "services:\n  a:\n    image: b\n"+
		"    ports: [\"3000-4000:3000-4000\"]\n"))
	if len(c.Problems) != 1 || c.Problems[0].Subject != "services.a.ports" || c.Problems[0].Line != 4 {
		t.Errorf("problems %v, %s", c.Problems, problems)
	}
	if len(c.Objects) != 2 {
		t.Errorf("objects %v", c.Objects)
	}
}

func TestErrorsOfFilesWithVariablesDoNotQuoteThem(t *testing.T) {
	const secret = "not-a-real-secret"
	dir := t.TempDir()
	project := write(t, dir, "compose.yaml", "services: {a: {image: b, env_file: a.env}}\n")
	for _, text := range []string{"A B=" + secret + "\n", "A=\"" + secret, "!" + secret + "=a\n"} {
		write(t, dir, "a.env", text)
		c, problems := run(t, project)
		if len(c.Problems) != 1 || strings.Contains(fmt.Sprint(c.Problems, problems), secret) ||
			c.Problems[0].Subject != "services.a.env_file[0].path" {
			t.Errorf("problems %v, %s", c.Problems, problems)
		}
	}
	write(t, dir, ".env", "A="+secret)
	_, problems := run(t, write(t, dir, "other.yaml", "services: {a: {image: b, cpus: \"${A}\"}}\n"))
	if !strings.Contains(problems, "${A}") || strings.Contains(problems, secret) {
		t.Errorf("the error of a variable is %q", problems)
	}
	write(t, dir, ".env", "A=\""+secret)
	if _, problems := run(t, project); problems == "" || strings.Contains(problems, secret) {
		t.Errorf("the error of .env is %q", problems)
	}
}

func TestVariablesOfFilesAreInSecretsOnly(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.env", "TOKEN=not-a-real-token\n")
	c, problems := run(t, write(t, dir, "compose.yaml", "services: {a: {image: b, env_file: a.env}}\n"))
	found := false
	for _, o := range c.Objects {
		isSecret := o.Content["kind"] == "Secret"
		if strings.Contains(fmt.Sprint(o.Content), "not-a-real-token") != isSecret {
			t.Errorf("%v", o.Content)
		}
		found = found || isSecret
	}
	if !found || len(c.Problems) > 0 {
		t.Errorf("objects %v, problems %v %s", c.Objects, c.Problems, problems)
	}
}
