package volume

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel is the real Mounter.
type Kernel struct{}

var _ Mounter = Kernel{}

// Tmpfs implements Mounter. It disables swap for the contents if the kernel supports that (6.4 and later), because swap
// would write them to a disk.
func (Kernel) Tmpfs(path, options string) error {
	err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, strings.TrimPrefix(options+",noswap", ","))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	}
	if err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", path, err)
	}
	return nil
}

// Bind implements Mounter. A bind mount never appears without its options: after a crash, an existing mount is
// considered complete.
func (Kernel) Bind(from, to string, options []string) error {
	flags, err := bindFlags(options)
	if err != nil {
		return err
	}
	if flags == 0 {
		return bind(from, to)
	}
	half := filepath.Join(filepath.Dir(to), "..new-"+filepath.Base(to)) // no volume has this name
	if err := removeStaging(half); err != nil {
		return err
	}
	if err := os.Mkdir(half, 0o750); err != nil {
		return err
	}
	if err = bind(from, half); err == nil {
		if err = remount(half, flags); err != nil {
			err = fmt.Errorf("give the mount at %s the options %s: %w", to, strings.Join(options, ","), err)
		} else {
			err = bind(half, to) // the bind inherits the options of its source
		}
	}
	return errors.Join(err, removeStaging(half))
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

// remount adds options to a bind mount. It keeps the existing options of the file system.
func remount(at string, flags uintptr) error {
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return err
	}
	current := uintptr(
		st.Flags,
	) & (unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_NODIRATIME)
	if current&unix.ST_NOATIME == 0 && uintptr(st.Flags)&unix.ST_RELATIME != 0 &&
		flags&(unix.MS_NOATIME|unix.MS_STRICTATIME) == 0 {
		flags |= unix.MS_RELATIME
	}
	return unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|current|flags, "")
}

// removeStaging removes the directory in which a bind mount is prepared, and a mount left there by a killed kubelet. It
// removes only an empty directory.
func removeStaging(half string) error {
	if err := (Kernel{}).Unmount(half); err != nil {
		return err
	}
	if err := os.Remove(half); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// MakeDir implements Mounter. A dangling link is an error, because it must not decide where a directory is created.
func (Kernel) MakeDir(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.MkdirAll(path, 0o755)
}

// Unmount implements Mounter. The unmount is lazy: a file system in use is detached after its last use.
func (Kernel) Unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
			return nil // nothing is mounted there any more
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

// bindOptions are the mount options that a bind mount supports, and the options that have no effect.
var bindOptions = map[string]uintptr{
	"ro":          unix.MS_RDONLY,
	"nosuid":      unix.MS_NOSUID,
	"nodev":       unix.MS_NODEV,
	"noexec":      unix.MS_NOEXEC,
	"noatime":     unix.MS_NOATIME,
	"nodiratime":  unix.MS_NODIRATIME,
	"relatime":    unix.MS_RELATIME,
	"strictatime": unix.MS_STRICTATIME,
	"bind":        0,
	"rbind":       0,
	"rw":          0,
	"defaults":    0,
}

// bindFlags returns the mount flags for options. It returns an error for an option that a bind mount does not support.
func bindFlags(options []string) (flags uintptr, err error) {
	for _, o := range options {
		for _, option := range strings.Split(o, ",") {
			flag, ok := bindOptions[option]
			if !ok {
				return 0, fmt.Errorf("mount option %q is not supported for directories of the node", option)
			}
			flags |= flag
		}
	}
	return flags, nil
}

// UnmountAll implements Mounter. The unmount is lazy: a file system in use is detached after its last use.
func (Kernel) UnmountAll(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := mountsBelow(dir)
	if err != nil || len(mounts) == 0 {
		return err
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(root)
	for _, at := range mounts {
		if err := unmountBeneath(root, at); err != nil {
			return fmt.Errorf("unmount %s: %w", filepath.Join(dir, at), err)
		}
	}
	return nil
}

// unmountBeneath unmounts a path beneath an open directory. It follows no link on the way, because a link could lead to
// a mount of the machine.
func unmountBeneath(root int, path string) error {
	parent, err := openBeneath(root, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	at := fdPath(parent) + "/" + filepath.Base(path)
	err = unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // already unmounted, or unmounted together with another
	}
	return err
}

// mountsBelow returns the paths of all mounts below dir, relative to dir, in an order in which they can be unmounted.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		if fields := strings.Fields(line); len(fields) > 4 {
			if at, ok := strings.CutPrefix(unescape(fields[4]), strings.TrimSuffix(dir, "/")+"/"); ok {
				found = append(found, at)
			}
		}
		if err != nil {
			break
		}
	}
	// Of two mounts at one path, the later one is on top.
	slices.Reverse(found)
	slices.SortStableFunc(found, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return found, nil
}

// unescape undoes the octal escapes of /proc/self/mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// IsMounted implements Mounter.
func (Kernel) IsMounted(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
