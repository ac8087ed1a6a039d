package volume

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// setGroup gives a directory and its contents to a pod's group. Containers of other pods may write there concurrently.
// Therefore every file is opened before it is changed, so that a name replaced by a link has no effect elsewhere. With
// onMismatch, it changes nothing if the directory already has the group.
func setGroup(dir string, group *int64, onMismatch bool) error {
	if group == nil {
		return nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if onMismatch && int64(st.Gid) == *group && st.Mode|groupMode(&st) == st.Mode {
		return nil
	}
	give := func(fd int, st *unix.Stat_t) error {
		if err := unix.Fchownat(fd, "", -1, int(*group), unix.AT_EMPTY_PATH); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return nil
		}
		return unix.Chmod(fdPath(fd), st.Mode&0o7777|groupMode(st))
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := walk(fd, 0, give); err != nil {
			return fmt.Errorf("give what is in %s to group %d: %w", dir, *group, err)
		}
	}
	// Change the directory itself last: its group marks that everything is done.
	if err := give(fd, &st); err != nil {
		return fmt.Errorf("give %s to group %d: %w", dir, *group, err)
	}
	return nil
}

// groupMode returns the minimum permissions of a file's group.
func groupMode(st *unix.Stat_t) uint32 {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.S_ISGID | 0o770
	}
	return 0o660
}

// Usage is the disk usage of a directory.
type Usage struct{ Bytes, Inodes int64 }

// measureUsage counts the usage of a directory. It counts a file with several hard links once, and skips mounts.
func measureUsage(dir string) (Usage, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Usage{}, fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Usage{}, err
	}
	u := Usage{Bytes: st.Blocks * 512, Inodes: 1}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return u, nil
	}
	seen := map[uint64]bool{}
	err = walk(fd, 0, func(_ int, st *unix.Stat_t) error {
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		u.Bytes += st.Blocks * 512
		u.Inodes++
		return nil
	})
	if err != nil {
		return u, fmt.Errorf("count what is in %s: %w", dir, err)
	}
	return u, nil
}
