// Package local implements host.Host for the machine that the process runs on. The agent uses it. It needs root.
package local

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"

	"github.com/coreos/go-systemd/v22/dbus"

	"clusterctl/provision/host"
)

// Host is this machine.
type Host struct {
	Environment []string // environment of programs that Run starts; nil means that of this process

	mu   sync.Mutex
	conn *dbus.Conn // opened on first use
}

var _ host.Host = (*Host)(nil)

// Close closes the connection to systemd.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != nil {
		h.conn.Close()
		h.conn = nil
	}
}

// Stat describes a file. It does not follow links.
func (h *Host) Stat(path string) (host.Info, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return host.Info{}, err
	}
	out := host.Info{Mode: info.Mode(), Size: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		out.UID, out.GID = int(stat.Uid), int(stat.Gid)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if out.Target, err = os.Readlink(path); err != nil {
			return host.Info{}, err
		}
	}
	return out, nil
}

// ReadFile returns a file's content.
func (h *Host) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// WriteFile replaces a file atomically.
func (h *Host) WriteFile(path string, content io.Reader, mode fs.FileMode, uid, gid int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails after the rename, when there is nothing to remove
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(mode.Perm())
	}
	if err == nil {
		err = f.Chown(uid, gid)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

// Chmod sets permissions and owner.
func (h *Host) Chmod(path string, mode fs.FileMode, uid, gid int) error {
	if err := os.Lchown(path, uid, gid); err != nil {
		return err
	}
	return os.Chmod(path, mode.Perm())
}

// Mkdir makes a directory and its parents.
func (h *Host) Mkdir(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, mode.Perm())
}

// Symlink creates or atomically replaces a link.
func (h *Host) Symlink(target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// Rename moves a file within its file system.
func (h *Host) Rename(from, to string) error { return os.Rename(from, to) }

// RemoveAll removes a file or a tree.
func (h *Host) RemoveAll(path string) error { return os.RemoveAll(path) }

// List returns the names in a directory.
func (h *Host) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return names, nil
}

// Open opens a file.
func (h *Host) Open(path string) (io.ReadCloser, error) { return os.Open(path) }

func (h *Host) environment() []string {
	if h.Environment == nil {
		return os.Environ()
	}
	return slices.Clone(h.Environment)
}

// Run runs a program.
func (h *Host) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(h.environment(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := c.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, tail(string(out), 5))
	}
	return out, nil
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
