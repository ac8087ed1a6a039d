package step_test

import (
	"io/fs"
	"strings"
	"testing"

	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
)

// A strict umask at the first apply of an earlier release made directories unreadable for daemons with their own users.
func TestPermissionsOfProgramDirectoriesAreRepaired(t *testing.T) {
	binary := &step.Binary{Name: "clusterctl", Digest: "d", Size: 1, Link: "/usr/local/bin/clusterctl"}
	for _, path := range []string{host.LibraryDir, host.LibraryDir + "/d", binary.Target()} {
		for _, mode := range []fs.FileMode{0o700, 0o750, 0o777} {
			h := &hostfake.Host{}
			if err := h.WriteFile(binary.Target(), strings.NewReader("x"), 0o755, 0, 0); err != nil {
				t.Fatal(err)
			}
			if err := h.Symlink(binary.Target(), binary.Link); err != nil {
				t.Fatal(err)
			}
			if path != binary.Target() {
				if err := h.Mkdir(path, mode); err != nil {
					t.Fatal(err)
				}
			} else if err := h.Chmod(path, mode, 0, 0); err != nil {
				t.Fatal(err)
			}
			changes, err := step.Check(t.Context(), h, []step.Step{binary})
			if err != nil || changes[0].Action != step.Update || !strings.Contains(changes[0].Note, path+": mode") {
				t.Errorf("%s with mode %o: %+v, %v", path, mode, changes, err)
			}
			if err := step.Apply(t.Context(), h, []step.Step{binary}, func(int, step.Change) {}); err != nil {
				t.Fatal(err)
			}
			if info, err := h.Stat(path); err != nil || info.Mode.Perm() != 0o755 {
				t.Errorf("%s has mode %o after apply, %v", path, info.Mode.Perm(), err)
			}
		}
	}
	h := &hostfake.Host{}
	if err := h.WriteFile(binary.Target(), strings.NewReader("x"), 0o755, 0, 0); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{host.LibraryDir: "/srv/programs", binary.Link: binary.Target()} {
		if err := h.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	if changes, err := step.Check(t.Context(), h, []step.Step{binary}); err != nil || changes[0].Action != "" {
		t.Errorf("a folder that was put elsewhere: %+v, %v", changes, err)
	}
}
