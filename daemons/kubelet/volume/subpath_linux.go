package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// bindSubPath binds the path sub below base to target. It creates a missing directory. The kernel resolves the path and
// rejects any path that leads out of base. The opened object is bound, whatever a container does to the path in the
// meantime. A restarted container gets the current object: the previous one may have been removed or replaced, and
// writes to it would be lost.
func (m *Manager) bindSubPath(base, sub, target string) error {
	if err := checkSubPath(sub); err != nil {
		return err
	}
	sub = path.Clean(sub)
	root, err := unix.Open(base, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", base, err)
	}
	defer unix.Close(root)
	fd, err := openBeneath(root, sub, unix.O_PATH, resolveWithin)
	if errors.Is(err, unix.ENOENT) {
		var st unix.Stat_t
		if err := unix.Fstat(root, &st); err != nil {
			return err
		}
		// Use the permissions of the volume, so that its users can write there.
		fd, err = makeBeneath(root, sub, st.Mode&(0o777|unix.S_ISGID|unix.S_ISVTX))
	}
	if err != nil {
		return fmt.Errorf("open %s in %s: %w", sub, base, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if mounted, err := m.Mounter.IsMounted(target); err != nil {
		return err
	} else if mounted {
		var before unix.Stat_t
		if err := unix.Lstat(target, &before); err == nil && before.Dev == st.Dev && before.Ino == st.Ino {
			return nil
		}
		if err := m.Mounter.Unmount(target); err != nil {
			return err
		}
	}
	if err := makeTarget(target, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return m.Mounter.Bind(fdPath(fd), target, nil)
}

// checkSubPath returns an error if sub is not a relative path that stays below the volume.
func checkSubPath(sub string) error {
	switch {
	case filepath.IsAbs(sub):
		return fmt.Errorf("subPath %q must be a relative path", sub)
	case slices.Contains(strings.Split(sub, "/"), ".."):
		return fmt.Errorf("subPath %q must not contain '..'", sub)
	}
	return nil
}

// makeTarget creates the mount point of a sub-path: a directory, or a file if the sub-path is not a directory. It
// replaces an earlier mount point of the other kind.
func makeTarget(target string, directory bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	switch info, err := os.Lstat(target); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir() == directory:
		return nil
	default:
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if directory {
		return os.Mkdir(target, 0o750)
	}
	return os.WriteFile(target, nil, 0o640)
}
