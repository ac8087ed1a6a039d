package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Containers can create links in their volumes at any time. Therefore nothing in a volume is accessed by an absolute
// path. A directory is opened once, and the kernel resolves all names beneath it.
const (
	// resolveWithin follows links that stay in the volume. A link that is absolute or leads out fails with EXDEV.
	resolveWithin = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
	// resolveNoLinks follows no link, and stays on the file system of the directory.
	resolveNoLinks = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
)

// openBeneath opens a path beneath an open directory. It retries if the kernel returns EAGAIN because of a concurrent
// rename.
func openBeneath(dir int, path string, flags int, resolve uint64) (fd int, err error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve}
	for range 100 {
		fd, err = unix.Openat2(dir, path, how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

// makeBeneath creates the missing directories of path, and opens the last one. New directories get exactly mode,
// regardless of the umask.
func makeBeneath(root int, path string, mode uint32) (int, error) {
	parts := strings.Split(path, "/")
	parent, err := unix.Dup(root)
	if err != nil {
		return -1, err
	}
	for i, name := range parts {
		next, err := openBeneath(root, strings.Join(parts[:i+1], "/"), unix.O_PATH|unix.O_DIRECTORY, resolveWithin)
		if errors.Is(err, unix.ENOENT) {
			// A dangling link exists, so mkdir fails and does not follow it.
			made := unix.Mkdirat(parent, name, mode&0o777)
			if made != nil && !errors.Is(made, unix.EEXIST) {
				unix.Close(parent)
				return -1, made
			}
			next, err = openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, resolveNoLinks)
			if err == nil && made == nil {
				err = unix.Fchmod(next, mode)
			}
		}
		unix.Close(parent)
		if err != nil {
			return -1, err
		}
		parent = next
	}
	return parent, nil
}

// fdPath returns a path to the object of an open descriptor.
func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// maxDepth limits how many directories are open at once during a walk.
const maxDepth = 512

// errTooDeep is returned for a tree with more than maxDepth levels, except when it is removed.
var errTooDeep = fmt.Errorf("directories are nested deeper than %d levels", maxDepth)

// walk calls visit for each entry below an open directory, with an O_PATH descriptor of the entry. A directory comes
// before its contents. walk follows no link, enters no mount, and skips entries that disappear.
func walk(dir int, depth int, visit func(fd int, st *unix.Stat_t) error) error {
	if depth > maxDepth {
		return errTooDeep
	}
	fd, err := openBeneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, resolveNoLinks)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	for {
		names, err := f.Readdirnames(256)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := walkEntry(fd, name, depth, visit); err != nil {
				return err
			}
		}
	}
}

func walkEntry(dir int, name string, depth int, visit func(fd int, st *unix.Stat_t) error) error {
	// RESOLVE_NO_SYMLINKS also rejects a link as the last element, unless O_NOFOLLOW opens the link itself.
	fd, err := openBeneath(dir, name, unix.O_PATH|unix.O_NOFOLLOW, resolveNoLinks)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EXDEV):
		return nil
	case err != nil:
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := visit(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return walk(fd, depth+1, visit)
	}
	return nil
}

// treeRemover removes a tree of any depth.
type treeRemover struct {
	topFD int
	moved int
}

// removeTree removes a directory and its contents. It follows no link. It fails if something is mounted below the
// directory, because the mounted contents do not belong to it.
func removeTree(path string) error { return removeTreeAfter(path, nil) }

// removeTreeAfter is removeTree. It calls last, unless nil, between emptying the directory and removing it.
func removeTreeAfter(path string, last func() error) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Dir(path), err)
	}
	defer unix.Close(parent)
	name := filepath.Base(path)
	fd, err := openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, resolveNoLinks)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return os.Remove(path)
	case err != nil:
		return fmt.Errorf("open %s: %w", path, err)
	}
	r := &treeRemover{topFD: fd}
	err = r.empty(fd, path, 0)
	unix.Close(fd)
	if err == nil && last != nil {
		err = last()
	}
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// empty removes the contents of an open directory. path is only used in errors.
func (r *treeRemover) empty(dir int, path string, depth int) error {
	for {
		fd, err := openBeneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, resolveNoLinks)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		f := os.NewFile(uintptr(fd), path)
		names, err := f.Readdirnames(1024)
		f.Close()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.remove(dir, name, filepath.Join(path, name), depth); err != nil {
				return err
			}
		}
	}
}

func (r *treeRemover) remove(dir int, name, path string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if depth >= maxDepth {
		// Move the directory up and remove it there: a container may nest directories deeper than the number of files
		// that this process can open.
		r.moved++
		if err := unix.Renameat2(dir, name, r.topFD, fmt.Sprintf("..deep-%d", r.moved),
			unix.RENAME_NOREPLACE); err != nil {
			if errors.Is(err, unix.EEXIST) {
				return r.remove(dir, name, path, depth)
			}
			return fmt.Errorf("move %s up to remove it: %w", path, err)
		}
		return nil
	}
	child, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, resolveNoLinks)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s is still mounted", path)
	case err != nil:
		return fmt.Errorf("open %s: %w", path, err)
	}
	err = r.empty(child, path, depth+1)
	unix.Close(child)
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
