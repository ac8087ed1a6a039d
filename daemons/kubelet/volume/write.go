package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	dataLink = "..data"     // the visible names are links through this link
	newLink  = "..data_tmp" // becomes dataLink by a rename
)

// writeFiles atomically replaces the files in dir: readers see the old set or the new one. The layout is upstream's,
// because programs watch it: visible names are links through ..data to a directory of the current version. Whatever a
// container has put into dir, nothing outside of it is read or written.
func writeFiles(dir string, files map[string]volumeFile, group *int64) error {
	for path := range files {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	old, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if old != "" && isSameVersion(root, old, files) {
		return updateLinks(root, files)
	}
	version := fmt.Sprintf("%s%d", time.Now().UTC().Format("..2006_01_02_15_04_05."), rand.Uint32())
	if err := root.Mkdir(version, 0o700); err != nil {
		return err
	}
	if err := writeVersion(root, version, files, group); err != nil {
		_ = root.RemoveAll(version)
		return err
	}
	_ = root.Remove(newLink)
	if err := root.Symlink(version, newLink); err != nil {
		return err
	}
	if err := root.Rename(newLink, dataLink); err != nil {
		return err
	}
	if err := updateLinks(root, files); err != nil {
		return err
	}
	return removeVersions(root, version)
}

func checkPath(path string) error {
	if path == "" || filepath.IsAbs(path) || filepath.Clean(path) != path || strings.HasPrefix(path, "..") {
		return fmt.Errorf("invalid path: %q must be relative, inside the volume, and not begin with two dots", path)
	}
	return nil
}

func writeVersion(root *os.Root, version string, files map[string]volumeFile, group *int64) error {
	if err := root.Chmod(version, 0o755); err != nil {
		return err
	}
	for name, f := range files {
		full := path.Join(version, name)
		if err := makeParents(root, version, path.Dir(name)); err != nil {
			return err
		}
		if err := root.WriteFile(full, f.data, 0o600); err != nil {
			return err
		}
		// Only root can change the owner of a file. A simulated node may run without root, but nothing reads its files.
		if f.user != nil && os.Geteuid() == 0 {
			if err := root.Chown(full, int(*f.user), -1); err != nil {
				return err
			}
		}
		perm := f.mode
		if group != nil {
			if err := root.Chown(full, -1, int(*group)); err != nil {
				return err
			}
			perm |= 0o440
		}
		if err := root.Chmod(full, perm); err != nil {
			return err
		}
	}
	return nil
}

// makeParents creates the parent directories of a file, readable for all regardless of the umask.
func makeParents(root *os.Root, version, dir string) error {
	if dir == "." {
		return nil
	}
	if err := makeParents(root, version, path.Dir(dir)); err != nil {
		return err
	}
	full := path.Join(version, dir)
	if err := root.Mkdir(full, 0o755); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	return root.Chmod(full, 0o755)
}

// isSameVersion reports whether a version holds exactly these files.
func isSameVersion(root *os.Root, version string, files map[string]volumeFile) bool {
	count := 0
	err := fs.WalkDir(root.FS(), version, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		count++
		rel, _ := filepath.Rel(version, name)
		f, ok := files[rel]
		info, err := d.Info()
		if err != nil || !ok || !info.Mode().IsRegular() || info.Size() != int64(len(f.data)) {
			return fs.ErrNotExist
		}
		data, err := root.ReadFile(name)
		if err != nil || !bytes.Equal(data, f.data) {
			return fs.ErrNotExist
		}
		return nil
	})
	return err == nil && count == len(files)
}

// updateLinks creates a visible name for the first element of every path, and removes names that are no longer needed.
func updateLinks(root *os.Root, files map[string]volumeFile) error {
	want := map[string]bool{}
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		want[top] = true
		switch info, err := root.Lstat(top); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.IsDir():
			continue
		default:
			// It was created as the sub-path of a container before the volume had this file. A non-empty directory
			// stays and causes an error.
			if err := root.Remove(top); err != nil {
				return err
			}
		}
		if err := root.Symlink(path.Join(dataLink, top), top); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") && e.Type()&fs.ModeSymlink != 0 && !want[e.Name()] {
			if err := root.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeVersions removes earlier versions.
func removeVersions(root *os.Root, keep string) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "..") && e.Name() != keep {
			if err := root.RemoveAll(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
