package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// noFollow is umount2's UMOUNT_NOFOLLOW: a link that a pod left is not followed.
const noFollow = 8

// Mounts returns the mounts at paths that start so, in the order in which they were made.
func (h *Host) Mounts(prefixes ...string) ([]string, error) {
	text, err := readAll("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return mounts(text, prefixes), nil
}

// The kernel writes these characters of a path in octal.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func mounts(text string, prefixes []string) (paths []string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		path := unescape.Replace(fields[1])
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) }) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Unmount unmounts the last mount first. What is busy is detached: it is out of the tree at
// once, and ends when its last user does.
func (h *Host) Unmount(prefixes ...string) error {
	paths, err := h.Mounts(prefixes...)
	if err != nil {
		return err
	}
	for _, path := range slices.Backward(paths) {
		err := syscall.Unmount(path, noFollow)
		if errors.Is(err, syscall.EBUSY) {
			err = syscall.Unmount(path, noFollow|syscall.MNT_DETACH)
		}
		// One that went by itself, as its copy in another place did, is no mount any more.
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if paths, err = h.Mounts(prefixes...); err == nil && len(paths) > 0 {
		return fmt.Errorf("%s is mounted again as soon as it is unmounted", paths[0])
	}
	return err
}
