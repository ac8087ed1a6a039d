package step_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
)

func putFile(t *testing.T, h *hostfake.Host, path, text string, mode fs.FileMode, uid int) {
	t.Helper()
	if err := h.WriteFile(path, strings.NewReader(text), mode, uid, 0); err != nil {
		t.Fatal(err)
	}
}

func changeOf(t *testing.T, h *hostfake.Host, s step.Step) step.Change {
	t.Helper()
	changes, err := step.Check(t.Context(), h, []step.Step{s})
	if err != nil {
		t.Fatal(err)
	}
	return changes[0]
}

func TestForeignFilesAreReportedAndKept(t *testing.T) {
	h := &hostfake.Host{}
	s := &step.Foreign{Dir: "/etc/kubernetes/manifests", OwnFiles: []string{"etcd.yaml"},
		Effect: "the kubelet runs it as a static pod"}
	if c := changeOf(t, h, s); c.Kind != "" {
		t.Errorf("Check without the folder: %+v, want no change", c)
	}
	putFile(t, h, "/etc/kubernetes/manifests/etcd.yaml", "ours", 0o600, 0)
	putFile(t, h, "/etc/kubernetes/manifests/.hidden.yaml", "not read by the kubelet", 0o600, 0)
	if c := changeOf(t, h, s); c.Kind != "" {
		t.Errorf("Check with own files only: %+v, want no change", c)
	}
	putFile(t, h, "/etc/kubernetes/manifests/miner.yaml", "theirs", 0o600, 0)
	c := changeOf(t, h, s)
	if c.Kind != step.ForeignFiles || c.Action != "" || c.Name != "/etc/kubernetes/manifests/miner.yaml" ||
		c.Note != s.Effect {
		t.Errorf("Check: %+v", c)
	}
}

func TestObsoleteFoldersAreRemovedAndForeignOnesKept(t *testing.T) {
	h := &hostfake.Host{}
	s := &step.PruneDirs{Dir: "/etc/containerd/certs.d", File: "hosts.toml", Written: "# written by clusterctl",
		Keep: []string{"kept.example"}}
	for path, text := range map[string]string{
		"kept.example/hosts.toml":   "# written by clusterctl\n",
		"former.example/hosts.toml": "# written by clusterctl\n", "former.example/ca.crt": "x",
		"theirs.example/hosts.toml": "server = \"x\"\n", "docker.example/ca.crt": "x",
	} {
		putFile(t, h, s.Dir+"/"+path, text, 0o600, 0)
	}
	if c := changeOf(t, h, s); c.Action != step.Delete || c.Name != s.Dir+"/former.example" {
		t.Errorf("Check: %+v", c)
	}
	if err := step.Apply(t.Context(), h, []step.Step{s}, func(int, step.Change) {}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"kept.example/hosts.toml": true, "former.example/ca.crt": false,
		"theirs.example/hosts.toml": true, "docker.example/ca.crt": true} {
		if _, err := h.Stat(s.Dir + "/" + path); (err == nil) != want || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if c := changeOf(t, h, s); c.Action != "" {
		t.Errorf("Check after Apply: %+v, want no change", c)
	}
}

func TestProgramsThatOtherUsersCanWriteAreRejected(t *testing.T) {
	h := &hostfake.Host{}
	s := &step.Program{Path: "/opt/providers/ecr", For: "credential_provider ecr"}
	refused := func(want string) {
		t.Helper()
		if _, err := step.Check(t.Context(), h, []step.Step{s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("does not exist")
	putFile(t, h, s.Path, "x", 0o644, 0)
	refused("is not an executable file")
	putFile(t, h, s.Path, "x", 0o777, 0)
	refused("other than root")
	putFile(t, h, s.Path, "x", 0o755, 1000)
	refused("other than root")
	putFile(t, h, s.Path, "x", 0o755, 0)
	if c := changeOf(t, h, s); c.Action != "" {
		t.Errorf("Check: %+v", c)
	}
}

// A plan for a new machine does not report a missing program if a package installs it.
func TestProgramsMayBeInstalledByPackages(t *testing.T) {
	h := &hostfake.Host{Debian: &hostfake.Debian{Installed: map[string]string{"ecr": "1"}}}
	putFile(t, h, "/usr/bin/dpkg-query", "x", 0o755, 0)
	s := &step.Program{Path: "/opt/providers/ecr", For: "credential_provider ecr"}
	steps := []step.Step{&step.Package{Name: "ecr"}, s}
	if _, err := step.Check(t.Context(), h, steps); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("with a package that has not brought it: %v", err)
	}
	h.Debian.Installed = map[string]string{}
	changes, err := step.Check(t.Context(), h, steps)
	if err != nil || changes[0].Action != step.Create || changes[1].Action != step.Create {
		t.Fatalf("%+v, %v", changes, err)
	}
	if err := s.Apply(t.Context(), h, nil); err == nil || !strings.Contains(err.Error(), "none of the packages") {
		t.Errorf("where it is missing afterwards: %v", err)
	}
}

func TestForeignFilesAreNotRemoved(t *testing.T) {
	h := &hostfake.Host{}
	s := &step.Absent{Path: "/var/lib/kubelet/config.json", Written: "ours"}
	putFile(t, h, s.Path, "theirs", 0o600, 0)
	if c := changeOf(t, h, s); c.Action != "" {
		t.Errorf("Check of a file of others: %+v, want no change", c)
	}
	putFile(t, h, s.Path, "ours and more", 0o600, 0)
	if c := changeOf(t, h, s); c.Action != step.Delete {
		t.Errorf("Check of our file: %+v, want a deletion", c)
	}
}
