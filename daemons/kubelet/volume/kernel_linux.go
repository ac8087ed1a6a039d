package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Kernel is the Mounter of the machine itself.
type Kernel struct{}

var _ Mounter = Kernel{}

// Tmpfs implements Mounter.
func (Kernel) Tmpfs(path string, size int64) error {
	options := ""
	if size > 0 {
		options = fmt.Sprintf("size=%d", size)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", path, err)
	}
	return nil
}

// Bind implements Mounter.
func (Kernel) Bind(from, to string, readOnly bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	if readOnly {
		if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", to, err)
		}
	}
	return nil
}

// Unmount implements Mounter. What is still in use goes when its last user does.
func (Kernel) Unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // not a mount
	}
	return err
}

// Mounted implements Mounter.
func (Kernel) Mounted(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// subPath binds the path sub below base to target. The kernel resolves it, and
// refuses whatever leads out of base.
func (m *Manager) subPath(base, sub, target string) error {
	if err := check(sub); err != nil {
		return err
	}
	if mounted, err := m.Mounter.Mounted(target); err != nil || mounted {
		return err
	}
	root, err := unix.Open(base, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", base, err)
	}
	defer unix.Close(root)
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, sub, how)
	if errors.Is(err, unix.ENOENT) {
		if err := os.MkdirAll(filepath.Join(base, sub), 0o750); err != nil {
			return err
		}
		fd, err = unix.Openat2(root, sub, how)
	}
	if err != nil {
		return fmt.Errorf("open %s in %s: %w", sub, base, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(target, 0o750)
	} else {
		err = os.WriteFile(target, nil, 0o640)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return m.Mounter.Bind(fmt.Sprintf("/proc/self/fd/%d", fd), target, false)
}
