package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// FileSystem describes a device to mount.
type FileSystem struct {
	Device  string
	Type    string // "" means the existing type, or ext4 for a new file system
	Options []string
	// ReadOnly means that the pod only reads, so that no file system is created for it. The mount itself is not
	// read-only, because other pods may write.
	ReadOnly bool
	// FormatMark is the path of a file that exists from the creation of a file system until it is mounted. If the
	// kubelet is killed in between, it marks the incomplete file system as disposable.
	FormatMark string
}

// defaultFileSystem is created on a device whose volume specifies no type.
const defaultFileSystem = "ext4"

// fileSystemName matches valid file system types, which become part of a program's name.
var fileSystemName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// isDevice reports whether a path is a block device. It returns an error if the path is neither a device nor a
// directory.
func isDevice(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	mode := info.Mode()
	block := mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	if !block && !mode.IsDir() {
		return false, fmt.Errorf("%s is neither a directory nor a block device", path)
	}
	return block, nil
}

// mountFileSystem mounts the file system on the device of a persistent volume. An empty device is formatted. The caller
// holds the volume's turn. The file system is prepared at another path first: whatever is mounted at the volume's path
// has all its options and the pod's group.
func (m *Manager) mountFileSystem(
	ctx context.Context,
	p *corev1.Pod,
	v *corev1.Volume,
	pv *corev1.PersistentVolume,
	dir string,
) error {
	device, err := filepath.EvalSymlinks(pv.Spec.Local.Path)
	if err != nil {
		return err
	}
	// A process that uses the raw device has not necessarily opened it exclusively.
	switch users, err := m.usersOf(device); {
	case err != nil:
		return fmt.Errorf("look who uses persistent volume %s: %w", pv.Name, err)
	case len(users) > 0:
		return fmt.Errorf("persistent volume %s: %s is not mounted while a pod has it as a device", pv.Name, device)
	}
	f := FileSystem{
		Device:     device,
		Options:    pv.Spec.MountOptions,
		ReadOnly:   v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly,
		FormatMark: filepath.Join(m.Root, "formatting", string(pv.UID)),
	}
	if t := pv.Spec.Local.FSType; t != nil && *t != "" {
		if f.Type = *t; !fileSystemName.MatchString(f.Type) {
			return fmt.Errorf("persistent volume %s: %q is not a file system type", pv.Name, f.Type)
		}
	}
	half := filepath.Join(filepath.Dir(dir),
		"..fs-"+filepath.Base(dir)) // no volume and no prepared bind mount has this name
	if err := m.Mounter.Unmount(half); err != nil {
		return err
	}
	if err := os.MkdirAll(half, 0o750); err != nil {
		return err
	}
	err = m.Mounter.MountDevice(ctx, f, half)
	if err == nil {
		err = m.bindPrepared(p, pv, f.ReadOnly, half, dir)
	}
	if err := errors.Join(err, m.Mounter.Unmount(half)); err != nil {
		return fmt.Errorf("persistent volume %s: %w", pv.Name, err)
	}
	if err := os.Remove(half); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// bindPrepared binds a file system that was mounted at another path to the pod's directory, and sets its group.
func (m *Manager) bindPrepared(p *corev1.Pod, pv *corev1.PersistentVolume, readOnly bool, half, dir string) error {
	if err := m.checkExclusive(p, pv, half); err != nil {
		return err
	}
	if readOnly { // a pod that only reads does not change owners
		return m.bindMount(half, dir, []string{"ro"})
	}
	var st unix.Statfs_t
	if err := unix.Statfs(half, &st); err != nil {
		return err
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		if err := setGroup(half, fsGroup(p), isOnRootMismatch(p)); err != nil {
			return err
		}
	}
	return m.bindMount(half, dir, nil) // the bind inherits the options of its source
}

// isOnRootMismatch reports whether files keep their owners if the volume's root already has the pod's group.
func isOnRootMismatch(p *corev1.Pod) bool {
	sc := p.Spec.SecurityContext
	return sc != nil && sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == corev1.FSGroupChangeOnRootMismatch
}
