package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	os.Exit(m.Run())
}

// run runs the command with a variable in its environment.
func run(t *testing.T, args ...string) (document, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{Command}, args...)...)
	var out, problems bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"HOST=secret"}, &out, &problems
	var d document
	if err := cmd.Run(); err == nil {
		if err := json.Unmarshal(out.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(problems.String(), noLandlock) {
		t.Skipf("the command refuses to run: %s", problems.String())
	}
	return d, problems.String()
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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
	d, problems := run(t, first, second)
	for _, want := range []string{`"image":"nginx:2"`, `"A":"2"`, `"HOST":"none"`} {
		if !strings.Contains(string(d.Project), want) {
			t.Errorf("the project has no %s: %s%s", want, d.Project, problems)
		}
	}
	if d.Texts["configs.a"] != "listen 80\n" || len(d.Disabled) != 1 {
		t.Errorf("texts %v, disabled %v", d.Texts, d.Disabled)
	}
	if d, _ := run(t, "--env", first); !strings.Contains(string(d.Project), `"HOST":"secret"`) {
		t.Errorf("--env does not use the environment: %s", d.Project)
	}
}

func TestFilesOutsideOfTheFolderAreNotRead(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	target := write(t, outside, "outside.yaml", "services: {a: {image: b}}\n")
	if err := os.Symlink(target, filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"include: [" + target + "]\n", "include: [link.yaml]\n",
		"services: {a: {extends: {file: " + target + ", service: a}}}\n",
		"services: {a: {image: b, env_file: " + target + "}}\n"} {
		_, problems := run(t, write(t, dir, "compose.yaml", text))
		if !strings.Contains(problems, "permission denied") {
			t.Errorf("%s: the error is %q", text, problems)
		}
	}
	d, problems := run(t, write(t, dir, "compose.yaml", "services: {a: {image: b, configs: [c]}}\n"+
		"configs: {c: {file: "+target+"}}\n"))
	if !strings.Contains(d.Unread["configs.c"], "permission denied") {
		t.Errorf("unread %v, %s", d.Unread, problems)
	}
}
