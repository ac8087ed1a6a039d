package load_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"clusterctl/hcl/load"
)

// gitRepository is a Git repository that contains a module.
type gitRepository struct {
	t   *testing.T
	dir string
}

func newGitRepository(t *testing.T) gitRepository {
	t.Helper()
	f := gitRepository{t, filepath.Join(t.TempDir(), "modules")}
	f.git("init", "--quiet", "--initial-branch=main", f.dir)
	f.commit("one")
	f.git("-C", f.dir, "tag", "v1")
	return f
}

func (f gitRepository) git(args ...string) {
	f.t.Helper()
	c := exec.Command("git", args...)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	if out, err := c.CombinedOutput(); err != nil {
		f.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// commit commits a module whose output contains text.
func (f gitRepository) commit(text string) {
	f.t.Helper()
	writeFile(f.t, filepath.Join(f.dir, "say", "say.hcl"), `module "inner" { source = "../inner" }
output "text" { value = "`+text+` ${module.inner.text}" }
`)
	writeFile(f.t, filepath.Join(f.dir, "inner", "inner.hcl"), `output "text" { value = "inside" }`+"\n")
	f.git("-C", f.dir, "add", ".")
	f.git("-C", f.dir, "commit", "--quiet", "-m", text)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// folder returns a configuration that calls the module at a reference.
func (f gitRepository) folder(ref string) string {
	f.t.Helper()
	dir := f.t.TempDir()
	writeFile(f.t, filepath.Join(dir, "main.hcl"), `cluster "c" {}
module "say" { source = "git::file://`+f.dir+`//say?ref=`+ref+`" }
output "text" { value = module.say.text }
`)
	return dir
}

func fetchModules(t *testing.T, dir string, update bool) error {
	t.Helper()
	_, diags := load.FetchModules(t.Context(), dir, update, func(string) {})
	if diags.HasErrors() {
		return diags
	}
	return nil
}

// outputOf returns the output "text" of a configuration, or its first error.
func outputOf(dir string) string {
	c, diags := load.Load(load.Options{Path: dir})
	if diags.HasErrors() {
		return diags[0].Detail
	}
	return c.Cluster.Outputs[0].Value.(string)
}

func TestGitModulesMatchTheLockFile(t *testing.T) {
	f := newGitRepository(t)
	dir := f.folder("main")
	if got := outputOf(dir); !strings.Contains(got, "clusterctl get") {
		t.Errorf("before it is fetched: %s", got)
	}
	if err := fetchModules(t, dir, false); err != nil {
		t.Fatal(err)
	}
	if got := outputOf(dir); got != "one inside" {
		t.Errorf("fetched: %s", got)
	}
	f.commit("two")
	if err := fetchModules(t, dir, false); err != nil {
		t.Fatal(err)
	}
	if got := outputOf(dir); got != "one inside" {
		t.Errorf("fetched again without -update: %s", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, ".clusterctl")); err != nil {
		t.Fatal(err)
	}
	if err := fetchModules(t, dir, false); err != nil {
		t.Fatal(err)
	}
	if got := outputOf(dir); got != "one inside" {
		t.Errorf("fetched again by the lock file: %s", got)
	}
	if err := fetchModules(t, dir, true); err != nil {
		t.Fatal(err)
	}
	if got := outputOf(dir); got != "two inside" {
		t.Errorf("with -update: %s", got)
	}
}

func TestChangedModulesAreRejectedAndFetchedAgain(t *testing.T) {
	f := newGitRepository(t)
	dir := f.folder("v1")
	if err := fetchModules(t, dir, false); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, ".clusterctl/modules/*/inner/inner.hcl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	writeFile(t, files[0], `output "text" { value = "evil" }`)
	if got := outputOf(dir); !strings.Contains(got, "hash") {
		t.Errorf("a changed module is taken: %s", got)
	}
	if err := fetchModules(t, dir, false); err != nil {
		t.Fatal(err)
	}
	if got := outputOf(dir); got != "one inside" {
		t.Errorf("fetched again: %s", got)
	}
}

func TestRepositoriesThatDifferFromTheLockAreRejected(t *testing.T) {
	f := newGitRepository(t)
	dir := f.folder("v1")
	if err := fetchModules(t, dir, false); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dir, ".clusterctl.lock.hcl")
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "sha256:") + len("sha256:")
	writeFile(t, lock, string(text[:at])+"AAAA"+string(text[at+4:]))
	if err := fetchModules(t, dir, false); err == nil || !strings.Contains(err.Error(), "does not give what it gave") {
		t.Errorf("get: %v", err)
	}
}

func TestMissingGitReferencesAreReportedAtTheirLine(t *testing.T) {
	dir := newGitRepository(t).folder("v9")
	_, diags := load.FetchModules(t.Context(), dir, false, func(string) {})
	if len(diags) != 1 || !strings.Contains(diags[0].Detail, `"v9"`) || diags[0].Subject == nil ||
		diags[0].Subject.Start.Line != 2 {
		t.Errorf("%v", diags)
	}
}
