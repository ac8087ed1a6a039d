// Package logs reads, rotates and removes the logs of containers. Programs in pods may write to the log directory.
// Therefore nothing here follows links that lead out of it.
package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cri"
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

// Dir is the directory of the logs of all pods.
type Dir string

// Open opens a log below the directory, as openLog does.
func (d Dir) Open(path string) (*os.File, error) { return openLog(string(d), path) }

// Pod returns the directory of a pod's logs.
func (d Dir) Pod(p *corev1.Pod) string { return cri.LogDir(string(d), p) }

// Path returns the path of the log of one attempt of a container.
func (d Dir) Path(p *corev1.Pod, container string, attempt uint32) string {
	return filepath.Join(d.Pod(p), cri.LogPath(container, attempt))
}

// Links returns the directory of the links by which log collectors find the logs of containers.
func (d Dir) Links() string { return filepath.Join(filepath.Dir(string(d)), "containers") }

// inRoot calls do with a root for the directory. Links that lead out of the directory are not followed.
func (d Dir) inRoot(do func(root *os.Root) error) error {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// name returns a path relative to the directory.
func (d Dir) name(path string) string {
	rel, err := filepath.Rel(string(d), path)
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

// Create creates a directory of logs.
func (d Dir) Create(path string) error {
	return d.inRoot(func(root *os.Root) error { return root.MkdirAll(d.name(path), 0o755) })
}

// RemoveAll removes a directory of logs.
func (d Dir) RemoveAll(path string) error {
	return d.inRoot(func(root *os.Root) error { return root.RemoveAll(d.name(path)) })
}

// Remove removes the log of one attempt of a container, including its rotated parts.
func (d Dir) Remove(p *corev1.Pod, container string, attempt uint32) error {
	return d.inRoot(func(root *os.Root) error {
		parts, err := logParts(root, d.name(d.Path(p, container, attempt)))
		for _, part := range parts {
			err = errors.Join(err, root.Remove(part))
		}
		return err
	})
}

// Size returns the size of a container's logs in bytes, including rotated parts. On errors it is a lower bound.
func (d Dir) Size(p *corev1.Pod, container string) (sum int64, err error) {
	err = d.inRoot(func(root *os.Root) error {
		return fs.WalkDir(root.FS(), d.name(filepath.Join(d.Pod(p), container)),
			func(_ string, e fs.DirEntry, err error) error {
				if err != nil || !e.Type().IsRegular() {
					return err
				}
				if info, err := e.Info(); err == nil {
					sum += info.Size()
				}
				return nil
			})
	})
	return sum, err
}

// Rotate renames the log at path and has reopen open a new one. It removes the oldest parts, so that at most files
// files remain with the new one, but at least two.
func (d Dir) Rotate(path string, files int, reopen func() error) error {
	return d.inRoot(func(root *os.Root) error {
		name := d.name(path)
		old, err := logParts(root, name+".")
		if err != nil {
			return err
		}
		for len(old) > max(files, 2)-2 {
			if err := root.Remove(old[0]); err != nil {
				return err
			}
			old = old[1:]
		}
		aside := name + "." + time.Now().UTC().Format("20060102-150405")
		if err := root.Rename(name, aside); err != nil {
			return err
		}
		if err := reopen(); err != nil {
			return errors.Join(err, root.Rename(aside, name))
		}
		return nil
	})
}

// Link creates the link below /var/log/containers by which log collectors find a container's log. It ignores errors,
// because without that directory there are no log collectors.
func (d Dir) Link(p *corev1.Pod, container string, attempt uint32, id string) {
	dir := d.Links()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return
	}
	link := filepath.Join(dir, fmt.Sprintf("%s_%s_%s-%s.log", p.Name, p.Namespace, container, id))
	// A relative link also works if the logs directory is mounted elsewhere, and when the kubelet serves it.
	log, err := filepath.Rel(dir, d.Path(p, container, attempt))
	if err != nil {
		return
	}
	_ = os.Symlink(log, link)
}
