// Package hosttest tests the behaviour of a machine's files. It runs over the fake and the real implementation, so that
// tests with the fake mean something. Units and the rest are tested on real machines, in tests/e2e.
package hosttest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"clusterctl/provision/host"
)

// Files tests a host's files below root, which is an empty directory.
//
//style:long a suite of subtests
func Files(t *testing.T, h host.Host, root string) {
	uid, gid := os.Getuid(), os.Getgid()
	write := func(t *testing.T, path, content string, mode fs.FileMode) {
		t.Helper()
		if err := h.WriteFile(path, strings.NewReader(content), mode, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(t *testing.T, path, want string) {
		t.Helper()
		if got, err := h.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v, want %q", path, got, err, want)
		}
	}
	missing := func(t *testing.T, what string, err error) {
		t.Helper()
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of what is not there: %v, want fs.ErrNotExist", what, err)
		}
	}

	t.Run("what is missing is not there", func(t *testing.T) {
		_, err := h.Stat(root + "/none")
		missing(t, "Stat", err)
		_, err = h.ReadFile(root + "/none")
		missing(t, "ReadFile", err)
		_, err = h.Open(root + "/none")
		missing(t, "Open", err)
		_, err = h.List(root + "/none")
		missing(t, "List", err)
		missing(t, "Rename", h.Rename(root+"/none", root+"/other"))
		missing(t, "Chmod", h.Chmod(root+"/none", 0o600, uid, gid))
		if err := h.RemoveAll(root + "/none"); err != nil {
			t.Errorf("RemoveAll of what is not there: %v", err)
		}
	})
	t.Run("a written file has its content, mode and parents", func(t *testing.T) {
		path := root + "/deep/er/file"
		write(t, path, "one", 0o640)
		holds(t, path, "one")
		write(t, path, "three", 0o600)
		holds(t, path, "three")
		if i, err := h.Stat(path); err != nil || i.Mode != 0o600 || i.Size != 5 || i.UID != uid || i.GID != gid {
			t.Errorf("%+v, %v", i, err)
		}
		if i, err := h.Stat(root + "/deep"); err != nil || !i.Mode.IsDir() {
			t.Errorf("the parent is %+v, %v", i, err)
		}
		if err := h.Chmod(path, 0o755, uid, gid); err != nil {
			t.Error(err)
		}
		if i, err := h.Stat(path); err != nil || i.Mode != 0o755 {
			t.Errorf("after Chmod %+v, %v", i, err)
		}
		f, err := h.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != "three" || f.Close() != nil {
			t.Errorf("read %q, %v", text, err)
		}
	})
	t.Run("a link is itself, and reads as its target", func(t *testing.T) {
		write(t, root+"/target", "content", 0o600)
		write(t, root+"/link", "in the way", 0o600)
		if err := h.Symlink(root+"/target", root+"/link"); err != nil {
			t.Fatal(err)
		}
		if i, err := h.Stat(root + "/link"); err != nil || i.Mode.Type() != fs.ModeSymlink ||
			i.Target != root+"/target" {
			t.Errorf("%+v, %v", i, err)
		}
		holds(t, root+"/link", "content")
		if err := h.RemoveAll(root + "/link"); err != nil {
			t.Error(err)
		}
		holds(t, root+"/target", "content")
	})
	t.Run("a directory lists its names in order", func(t *testing.T) {
		if err := h.Mkdir(root+"/dir", 0o700); err != nil {
			t.Fatal(err)
		}
		if names, err := h.List(root + "/dir"); err != nil || len(names) != 0 {
			t.Errorf("an empty one has %v, %v", names, err)
		}
		write(t, root+"/dir/b", "", 0o600)
		write(t, root+"/dir/a/inner", "", 0o600)
		if names, err := h.List(root + "/dir"); err != nil || !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("names %v, %v", names, err)
		}
		if i, err := h.Stat(root + "/dir"); err != nil || i.Mode != fs.ModeDir|0o700 {
			t.Errorf("%+v, %v", i, err)
		}
		if err := h.RemoveAll(root + "/dir"); err != nil {
			t.Error(err)
		}
		_, err := h.Stat(root + "/dir/a/inner")
		missing(t, "Stat", err)
	})
	t.Run("a moved file is at its new place alone", func(t *testing.T) {
		write(t, root+"/from", "moved", 0o600)
		if err := h.Rename(root+"/from", root+"/to"); err != nil {
			t.Fatal(err)
		}
		holds(t, root+"/to", "moved")
		_, err := h.Stat(root + "/from")
		missing(t, "Stat", err)
	})
}
