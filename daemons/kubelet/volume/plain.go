package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Plain is a Mounter that creates directories instead of mounts. It is for simulated nodes and for tests without root
// privileges.
type Plain struct{}

var _ Mounter = Plain{}

// Tmpfs implements Mounter.
func (Plain) Tmpfs(path, _ string) error { return os.MkdirAll(path, 0o755) }

// Bind implements Mounter. It creates a file if the source is a file, otherwise a directory.
func (Plain) Bind(from, to string, _ []string) error {
	info, err := os.Stat(from)
	if err != nil || info.IsDir() {
		return os.MkdirAll(to, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL, 0o640)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// MountDevice implements Mounter.
func (Plain) MountDevice(_ context.Context, _ FileSystem, at string) error {
	return os.MkdirAll(at, 0o755)
}

// MakeDir implements Mounter. It does nothing, because a source need not exist without mounts.
func (Plain) MakeDir(string) error { return nil }

// Unmount implements Mounter.
func (Plain) Unmount(string) error { return nil }

// UnmountAll implements Mounter.
func (Plain) UnmountAll(string) error { return nil }

// IsMounted implements Mounter.
func (Plain) IsMounted(string) (bool, error) { return false, nil }
