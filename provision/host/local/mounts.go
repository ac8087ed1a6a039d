package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// noFollow is umount2's UMOUNT_NOFOLLOW, which keeps umount2 from following links that a pod has left.
const noFollow = 8

// Mounts returns the mount points whose paths start with one of the prefixes, in the order in which they were mounted.
func (h *Host) Mounts(prefixes ...string) ([]string, error) {
	text, err := readAll("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseMounts(text, prefixes), nil
}

// unescape replaces the octal escapes that the kernel uses in /proc/self/mounts.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func parseMounts(text string, prefixes []string) (paths []string) {
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

// Unmount unmounts the last mount first. A busy mount is detached: it leaves the tree at once, and ends with its last
// user.
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
		// The mount may have disappeared by itself, for example together with a propagated copy.
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if paths, err = h.Mounts(prefixes...); err == nil && len(paths) > 0 {
		return fmt.Errorf("%s is mounted again as soon as it is unmounted", paths[0])
	}
	return err
}
