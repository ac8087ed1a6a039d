// Package hosttest tests the behaviour of a machine's files. It runs over the fake and the real implementation, so that
// tests with the fake mean something. Units and the rest are tested on real machines, in tests/suites/e2e.
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
func Files(t *testing.T, h host.Host, root string) {
	f := files{host: h, root: root, uid: os.Getuid(), gid: os.Getgid()}
	t.Run("missing files are reported as missing", f.checkMissing)
	t.Run("a written file has its content, mode and parents", f.checkWrites)
	t.Run("a link is itself, and reads as its target", f.checkLinks)
	t.Run("a directory lists its names in order", f.checkDirectories)
	t.Run("a moved file is only at its new path", f.checkRename)
}

// files is a host with the directory for its files.
type files struct {
	host     host.Host
	root     string
	uid, gid int // of the process
}

func (f *files) write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := f.host.WriteFile(path, strings.NewReader(content), mode, f.uid, f.gid); err != nil {
		t.Fatal(err)
	}
}

func (f *files) checkContent(t *testing.T, path, want string) {
	t.Helper()
	if got, err := f.host.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v, want %q", path, got, err, want)
	}
}

// wantMissing checks that an operation reports that the file does not exist.
func wantMissing(t *testing.T, operation string, err error) {
	t.Helper()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s of a missing file: %v, want fs.ErrNotExist", operation, err)
	}
}

// checkMissing checks the errors for files that do not exist.
func (f *files) checkMissing(t *testing.T) {
	_, err := f.host.Stat(f.root + "/none")
	wantMissing(t, "Stat", err)
	_, err = f.host.ReadFile(f.root + "/none")
	wantMissing(t, "ReadFile", err)
	_, err = f.host.Open(f.root + "/none")
	wantMissing(t, "Open", err)
	_, err = f.host.List(f.root + "/none")
	wantMissing(t, "List", err)
	wantMissing(t, "Rename", f.host.Rename(f.root+"/none", f.root+"/other"))
	wantMissing(t, "Chmod", f.host.Chmod(f.root+"/none", 0o600, f.uid, f.gid))
	if err := f.host.RemoveAll(f.root + "/none"); err != nil {
		t.Errorf("RemoveAll of a missing file: %v", err)
	}
}

// checkWrites checks the content, mode and parents of a written file.
func (f *files) checkWrites(t *testing.T) {
	path := f.root + "/deep/er/file"
	f.write(t, path, "one", 0o640)
	f.checkContent(t, path, "one")
	f.write(t, path, "three", 0o600)
	f.checkContent(t, path, "three")
	if i, err := f.host.Stat(path); err != nil || i.Mode != 0o600 || i.Size != 5 || i.UID != f.uid || i.GID != f.gid {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err := f.host.Stat(f.root + "/deep"); err != nil || !i.Mode.IsDir() {
		t.Errorf("the parent is %+v, %v", i, err)
	}
	if err := f.host.Chmod(path, 0o755, f.uid, f.gid); err != nil {
		t.Error(err)
	}
	if i, err := f.host.Stat(path); err != nil || i.Mode != 0o755 {
		t.Errorf("after Chmod %+v, %v", i, err)
	}
	file, err := f.host.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); err != nil || string(text) != "three" || file.Close() != nil {
		t.Errorf("read %q, %v", text, err)
	}
}

// checkLinks checks that a link is itself, and reads as its target.
func (f *files) checkLinks(t *testing.T) {
	f.write(t, f.root+"/target", "content", 0o600)
	f.write(t, f.root+"/link", "in the way", 0o600)
	if err := f.host.Symlink(f.root+"/target", f.root+"/link"); err != nil {
		t.Fatal(err)
	}
	if i, err := f.host.Stat(f.root + "/link"); err != nil || i.Mode.Type() != fs.ModeSymlink ||
		i.Target != f.root+"/target" {
		t.Errorf("%+v, %v", i, err)
	}
	f.checkContent(t, f.root+"/link", "content")
	if err := f.host.RemoveAll(f.root + "/link"); err != nil {
		t.Error(err)
	}
	f.checkContent(t, f.root+"/target", "content")
}

// checkDirectories checks that a directory lists its names in order.
func (f *files) checkDirectories(t *testing.T) {
	if err := f.host.Mkdir(f.root+"/dir", 0o700); err != nil {
		t.Fatal(err)
	}
	if names, err := f.host.List(f.root + "/dir"); err != nil || len(names) != 0 {
		t.Errorf("an empty one has %v, %v", names, err)
	}
	f.write(t, f.root+"/dir/b", "", 0o600)
	f.write(t, f.root+"/dir/a/inner", "", 0o600)
	if names, err := f.host.List(f.root + "/dir"); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("names %v, %v", names, err)
	}
	if i, err := f.host.Stat(f.root + "/dir"); err != nil || i.Mode != fs.ModeDir|0o700 {
		t.Errorf("%+v, %v", i, err)
	}
	if err := f.host.RemoveAll(f.root + "/dir"); err != nil {
		t.Error(err)
	}
	_, err := f.host.Stat(f.root + "/dir/a/inner")
	wantMissing(t, "Stat", err)
}

// checkRename checks that a moved file exists only at its new path.
func (f *files) checkRename(t *testing.T) {
	f.write(t, f.root+"/from", "moved", 0o600)
	if err := f.host.Rename(f.root+"/from", f.root+"/to"); err != nil {
		t.Fatal(err)
	}
	f.checkContent(t, f.root+"/to", "moved")
	_, err := f.host.Stat(f.root + "/from")
	wantMissing(t, "Stat", err)
}
