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

// subPath binds the path sub below base to target, and makes it as a directory when there is nothing. The kernel resolves it, and
// refuses whatever leads out of base. What is bound is what was opened, whatever a container does to the path meanwhile.
func (m *Manager) subPath(base, sub, target string) error {
	if filepath.IsAbs(sub) {
		return fmt.Errorf("subPath %q must be a relative path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return fmt.Errorf("subPath %q must not contain '..'", sub)
	}
	sub = path.Clean(sub)
	if mounted, err := m.Mounter.Mounted(target); err != nil || mounted {
		return err
	}
	root, err := unix.Open(base, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", base, err)
	}
	defer unix.Close(root)
	fd, err := openBeneath(root, sub, unix.O_PATH, withinVolume)
	if errors.Is(err, unix.ENOENT) {
		var st unix.Stat_t
		if err := unix.Fstat(root, &st); err != nil {
			return err
		}
		// Whoever may write in the volume may write there.
		fd, err = makeBeneath(root, sub, st.Mode&(0o777|unix.S_ISGID))
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
	return m.Mounter.Bind(byFD(fd), target, nil)
}
