package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	dataLink = "..data"     // what the visible names point into
	newLink  = "..data_tmp" // becomes dataLink by a rename
)

// write makes dir hold exactly the given files, all at once: readers see the old
// set or the new one. The layout is upstream's, which programs watch: visible names
// are links through ..data to a directory of this version.
func write(dir string, files map[string]file, group *int64) error {
	for path := range files {
		if err := check(path); err != nil {
			return err
		}
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if old != "" && same(filepath.Join(dir, old), files) {
		return links(dir, files)
	}
	version, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return err
	}
	if err := fill(version, files, group); err != nil {
		_ = os.RemoveAll(version)
		return err
	}
	_ = os.Remove(filepath.Join(dir, newLink))
	if err := os.Symlink(filepath.Base(version), filepath.Join(dir, newLink)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, newLink), filepath.Join(dir, dataLink)); err != nil {
		return err
	}
	if err := links(dir, files); err != nil {
		return err
	}
	return sweep(dir, filepath.Base(version))
}

func check(path string) error {
	if path == "" || filepath.IsAbs(path) || filepath.Clean(path) != path || strings.HasPrefix(path, "..") {
		return fmt.Errorf("invalid path: %q must be relative, inside the volume, and not begin with two dots", path)
	}
	return nil
}

func fill(dir string, files map[string]file, group *int64) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for path, f := range files {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, f.data, 0o600); err != nil {
			return err
		}
		perm := f.mode
		if group != nil {
			if err := os.Chown(full, -1, int(*group)); err != nil {
				return err
			}
			perm |= 0o440
		}
		if err := os.Chmod(full, perm); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether a version holds just these files.
func same(dir string, files map[string]file) bool {
	count := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		count++
		rel, _ := filepath.Rel(dir, path)
		f, ok := files[rel]
		if !ok {
			return fs.ErrNotExist
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(data, f.data) {
			return fs.ErrNotExist
		}
		return nil
	})
	return err == nil && count == len(files)
}

// links makes a visible name for the first element of every path, and removes the
// names that no longer lead anywhere.
func links(dir string, files map[string]file) error {
	want := map[string]bool{}
	for path := range files {
		top, _, _ := strings.Cut(path, "/")
		want[top] = true
		if _, err := os.Lstat(filepath.Join(dir, top)); errors.Is(err, fs.ErrNotExist) {
			if err := os.Symlink(filepath.Join(dataLink, top), filepath.Join(dir, top)); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") && e.Type()&fs.ModeSymlink != 0 && !want[e.Name()] {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep removes earlier versions.
func sweep(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "..") && e.Name() != keep {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
