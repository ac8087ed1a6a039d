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

// FileSystem is a device that is to be mounted.
type FileSystem struct {
	Device  string
	Type    string // "" for the one that is there, and for ext4 where one is made
	Options []string
	// ReadOnly is of a pod that only reads: none is made for it. Others may write meanwhile, so that it is not mounted
	// read-only.
	ReadOnly bool
	// Made is a file that is there from when a file system is made until it is mounted: what a kubelet that was killed
	// meanwhile has left on the device is no one's.
	Made string
}

// defaultFileSystem is made on a device whose volume names no other.
const defaultFileSystem = "ext4"

// fileSystemName is what a file system may be called: it becomes part of a program's name.
var fileSystemName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// isDevice says whether a path is a block device, and refuses what can be no local volume.
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

// fileSystem mounts the file system on the device that a persistent volume is; an empty device gets one. Its turn is
// held. It is mounted beside its place first, so that what is at its place is done: its options hold, and it is the
// pod's group's.
func (m *Manager) fileSystem(
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
	// Who has a device as it is need not have said so to the kernel.
	switch users, err := m.usersOf(device); {
	case err != nil:
		return fmt.Errorf("look who uses persistent volume %s: %w", pv.Name, err)
	case len(users) > 0:
		return fmt.Errorf("persistent volume %s: %s is not mounted while a pod has it as a device", pv.Name, device)
	}
	f := FileSystem{
		Device:   device,
		Options:  pv.Spec.MountOptions,
		ReadOnly: v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly,
		Made:     filepath.Join(m.Root, "formatting", string(pv.UID)),
	}
	if t := pv.Spec.Local.FSType; t != nil && *t != "" {
		if f.Type = *t; !fileSystemName.MatchString(f.Type) {
			return fmt.Errorf("persistent volume %s: %q is no type of file system", pv.Name, f.Type)
		}
	}
	half := filepath.Join(
		filepath.Dir(dir),
		"..fs-"+filepath.Base(dir),
	) // which no volume is called, and no bind that is made ready
	if err := m.Mounter.Unmount(half); err != nil {
		return err
	}
	if err := os.MkdirAll(half, 0o750); err != nil {
		return err
	}
	err = m.Mounter.Device(ctx, f, half)
	if err == nil {
		err = m.settle(p, pv, f.ReadOnly, half, dir)
	}
	if err := errors.Join(err, m.Mounter.Unmount(half)); err != nil {
		return fmt.Errorf("persistent volume %s: %w", pv.Name, err)
	}
	if err := os.Remove(half); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// settle gives a file system that was mounted beside its place to the pod that has it.
func (m *Manager) settle(p *corev1.Pod, pv *corev1.PersistentVolume, readOnly bool, half, dir string) error {
	if err := m.alone(p, pv, half); err != nil {
		return err
	}
	if readOnly { // who only reads gives nothing away
		return m.bind(half, dir, []string{"ro"})
	}
	var st unix.Statfs_t
	if err := unix.Statfs(half, &st); err != nil {
		return err
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		if err := own(half, fsGroup(p), keepsOwners(p)); err != nil {
			return err
		}
	}
	return m.bind(half, dir, nil) // which has the options of what it is a bind of
}

// keepsOwners says whether what is in a volume stays as it is when its root is the pod's group's already.
func keepsOwners(p *corev1.Pod) bool {
	sc := p.Spec.SecurityContext
	return sc != nil && sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == corev1.FSGroupChangeOnRootMismatch
}
