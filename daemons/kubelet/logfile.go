package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// openLog opens a log below root, the directory of all logs. Log collectors mount that directory. One of them could
// replace a log with a link to any file of the machine. Therefore openLog follows no links and opens only regular
// files.
func openLog(root, path string) (*os.File, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, fmt.Errorf("open log: %s is not below %s", path, root)
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", &os.PathError{Op: "open", Path: root, Err: err})
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, rel, &unix.OpenHow{
		// O_NONBLOCK: if the file is a pipe, do not wait for a writer.
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open log: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	file := os.NewFile(uintptr(fd), path)
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, fmt.Errorf("open log: %s is not a plain file", path)
	}
	return file, nil
}

// withLogRoot calls do with a root for the directory of all logs. Links that lead out of the directory are not
// followed.
func (k *Kubelet) withLogRoot(do func(root *os.Root) error) error {
	if err := os.MkdirAll(k.logRoot, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(k.logRoot)
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// logName returns the path of a log relative to the directory of all logs.
func (k *Kubelet) logName(path string) string {
	rel, err := filepath.Rel(k.logRoot, path)
	if err != nil {
		return path
	}
	return rel
}

// logParts returns the sorted names of the files below root that start with name.
func logParts(root *os.Root, name string) ([]string, error) {
	dir, begin := filepath.Split(name)
	dir = filepath.Clean(dir)
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var parts []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), begin) {
			parts = append(parts, filepath.Join(dir, e.Name()))
		}
	}
	return parts, err
}

func (k *Kubelet) makeLogDir(path string) error {
	return k.withLogRoot(func(root *os.Root) error { return root.MkdirAll(k.logName(path), 0o755) })
}

func (k *Kubelet) removeLogs(path string) error {
	return k.withLogRoot(func(root *os.Root) error { return root.RemoveAll(k.logName(path)) })
}
