package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/directory"
)

// ErrInUse is returned for a volume that a pod of the node still has, or that is being changed at the moment.
var ErrInUse = errors.New("the volume is in use")

// ErrMissing is returned for a volume that was made on this node and is not there. Its data is where its disk is.
var ErrMissing = errors.New("the volume was made on this node, and its directory is not there")

// ErrTooLarge is returned for a size that the file system does not have.
var ErrTooLarge = errors.New("the file system is smaller")

// provisioned mounts a volume that was made for the claim, and makes its directory the first time. The claim is asked
// about again in turn with Remove: a volume that was given up meanwhile is not made anew behind the back of who removed
// it.
func (m *Manager) provisioned(ctx context.Context, p *corev1.Pod, v *corev1.Volume, name, dir string) error {
	if err := m.changing.take(ctx, name); err != nil {
		return err
	}
	defer m.changing.give(name)
	pv, err := m.claimed(ctx, p, v)
	if err != nil {
		return err
	}
	if err := directory.CheckName(pv.Name); err != nil {
		return err
	}
	if pv.Name != name || pv.Spec.Local == nil || !directory.Provisioned(pv) ||
		pv.Spec.Local.Path != directory.Path(name) {
		return fmt.Errorf(
			"persistent volume %s: what %s provisioned lies at %s",
			pv.Name,
			directory.Provisioner,
			directory.Path(pv.Name),
		)
	}
	if err := m.mayMake(pv); err != nil {
		return err
	}
	if err := m.makeProvisioned(name, pv.Spec.Capacity.Storage().Value()); err != nil {
		return fmt.Errorf("make the directory of persistent volume %s: %w", name, err)
	}
	path := filepath.Join(m.Provisioned, name)
	if err := m.alone(p, pv, path); err != nil {
		return err
	}
	return m.give(p, v, path, dir, pv.Spec.MountOptions)
}

// mayMake refuses a volume that is not here and was made by another machine of the node's name, or by this one before
// it was installed anew: its claim had data, which an empty directory would hide.
func (m *Manager) mayMake(pv *corev1.PersistentVolume) error {
	if there, err := m.there(pv.Name); err != nil || there {
		return err
	}
	if why, known := m.elsewhere(pv.Annotations[directory.MadeAnnotation] != "",
		pv.Annotations[directory.MachineAnnotation]); why != "" {
		return fmt.Errorf(
			"persistent volume %s: %w: %s; bring the directory back, or, if the data is gone for good, delete the "+
				"claim or take the %s off the volume "+
				"to have an empty one",
			pv.Name,
			ErrMissing,
			why,
			known,
		)
	}
	return nil
}

// elsewhere says why the data of a volume that is not here may lie elsewhere, and by which annotations that is known.
// made says that a pod has had the volume, machine is the one that it was provisioned on. Where why is empty, it was
// never made.
func (m *Manager) elsewhere(made bool, machine string) (why, known string) {
	switch {
	case made:
		return fmt.Sprintf("the machine was installed anew, or its disk is not mounted at %s", m.Provisioned),
			"annotations " + directory.MadeAnnotation + " and " + directory.MachineAnnotation
	case machine != "" && m.Machine != "" && machine != m.Machine:
		return fmt.Sprintf(
			"it was provisioned on machine %s, and this is %s",
			machine,
			m.Machine,
		), "annotation " + directory.MachineAnnotation
	}
	return "", ""
}

// makeProvisioned makes a volume's directory, open to all as one of a pod's own is: who gets at it is decided by who
// mounts it, since nobody else comes past the directory that it is in. Where there is one, it sees that it is bounded.
// One that was made and is not there is not made anew: a pod would take it that its data was never written.
func (m *Manager) makeProvisioned(name string, bytes int64) error {
	path := filepath.Join(m.Provisioned, name)
	switch there, err := m.there(name); {
	case err != nil:
		return err
	case there:
		if err := m.bound(name, path, bytes); err != nil {
			return err
		}
		return m.noteMade(name)
	}
	if err := os.MkdirAll(m.Provisioned, 0o700); err != nil {
		return err
	}
	half := m.half(name)
	if err := m.erase(half); err != nil {
		return err
	}
	if err := os.Mkdir(half, 0o700); err != nil {
		return err
	}
	if err := m.bound(name, half, bytes); err != nil {
		return err
	}
	if err := os.Chmod(half, 0o777); err != nil { // past the umask
		return err
	}
	if err := os.Rename(half, path); err != nil {
		return err
	}
	if err := flush(m.Provisioned); err != nil {
		return err
	}
	return m.noteMade(name)
}

// there says whether a volume's directory is there. It returns ErrMissing for one that ought to be.
func (m *Manager) there(name string) (bool, error) {
	path := filepath.Join(m.Provisioned, name)
	switch info, err := os.Lstat(path); {
	case err == nil && !info.IsDir():
		return false, fmt.Errorf("%s is not a directory", path)
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	switch _, err := os.Lstat(m.madeNote(name)); {
	case err == nil:
		return false, fmt.Errorf(
			"%w: see that what was mounted at %s or above is mounted, or remove %s if the data is gone for good",
			ErrMissing,
			m.Provisioned,
			m.madeNote(name),
		)
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	return false, nil
}

// half is where a volume's directory is until it is ready. A name of a volume does not begin with a dot.
func (m *Manager) half(name string) string { return filepath.Join(m.Provisioned, "..new-"+name) }

// flush has the names in a directory outlive a loss of power.
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write %s to its disk: %w", dir, err)
	}
	return nil
}

// bound bounds a volume's directory where the file system can.
func (m *Manager) bound(name, path string, bytes int64) error {
	if m.Projects == nil {
		return nil
	}
	err := m.Projects.Bound(path, bytes)
	if errors.Is(err, ErrNoQuota) {
		if m.Unbounded != nil {
			m.Unbounded(name, err)
		}
		return nil
	}
	return err
}

// GrowProvisioned has a volume hold as much as is said. One that no pod has had yet is made of that size by the first.
// It returns ErrTooLarge for what the file system could never hold.
func (m *Manager) GrowProvisioned(name string, bytes int64) error {
	if err := directory.CheckName(name); err != nil {
		return err
	}
	if !m.changing.try(name) {
		return ErrInUse
	}
	defer m.changing.give(name)
	there, err := m.there(name)
	if err != nil || !there {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(m.Provisioned, &st); err != nil {
		return fmt.Errorf("look how large the file system of %s is: %w", m.Provisioned, err)
	}
	if size := int64(st.Blocks) * st.Bsize; size < bytes {
		return fmt.Errorf(
			"%w: it has %d bytes at %s, and the volume is to have %d",
			ErrTooLarge,
			size,
			m.Provisioned,
			bytes,
		)
	}
	return m.bound(name, filepath.Join(m.Provisioned, name), bytes)
}

// RemoveProvisioned removes the directory of a provisioned volume with what is in it. One that was never made is
// removed. It returns ErrInUse while a pod has the volume, and ErrMissing for a directory that is not where it was
// made, by what is noted here or by what the volume says: made, that a pod has had it, and the machine that it was
// provisioned on.
func (m *Manager) RemoveProvisioned(name string, made bool, machine string) error {
	if err := directory.CheckName(name); err != nil {
		return err
	}
	if !m.changing.try(name) {
		return ErrInUse
	}
	defer m.changing.give(name)
	path := filepath.Join(m.Provisioned, name)
	users, err := m.usersOf(path)
	if err != nil {
		return fmt.Errorf("look who uses volume %s: %w", name, err)
	}
	if len(users) > 0 {
		return fmt.Errorf("%w by pods with the uids %q", ErrInUse, users)
	}
	if err := m.erase(m.half(name)); err != nil {
		return fmt.Errorf("remove what there is of volume %s: %w", name, err)
	}
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		return removeTree(path)
	}
	there, err := m.there(name)
	if err != nil {
		return err
	}
	if !there && !m.removed(name) {
		if why, known := m.elsewhere(made, machine); why != "" {
			return fmt.Errorf(
				"%w: %s; bring the directory back to have it removed, or, if the data is gone for good, take the %s "+
					"off the volume",
				ErrMissing,
				why,
				known,
			)
		}
	}
	if !there {
		return nil
	}
	err = removeTreeAfter(path, func() error {
		if err := m.free(path); err != nil {
			return err
		}
		return m.forgetMade(name)
	})
	if err != nil {
		return fmt.Errorf("remove volume %s: %w", name, err)
	}
	return nil
}

// erase removes a directory, and gives its project back when it is empty.
func (m *Manager) erase(path string) error {
	return removeTreeAfter(path, func() error { return m.free(path) })
}

func (m *Manager) free(path string) error {
	if m.Projects == nil {
		return nil
	}
	return m.Projects.Free(path)
}

// usersOf returns the uids of pods in whose directory a volume is mounted: what is mounted is the very directory. That
// holds for pods of which nothing else is known any more, too.
func (m *Manager) usersOf(path string) ([]string, error) {
	var is unix.Stat_t
	switch err := unix.Lstat(path, &is); {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	uids, err := m.Pods()
	if err != nil {
		return nil, err
	}
	var users []string
	for _, uid := range uids {
		for _, volumes := range []string{"volumes", "volumeDevices"} {
			has, err := holds(filepath.Join(m.PodDir(uid), volumes, kind(&corev1.Volume{})), &is)
			if err != nil {
				return nil, err
			}
			if has && !slices.Contains(users, uid) {
				users = append(users, uid)
			}
		}
	}
	return users, nil
}

// holds says whether an entry of a directory is the very file.
func holds(dir string, is *unix.Stat_t) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		var st unix.Stat_t
		switch err := unix.Lstat(filepath.Join(dir, e.Name()), &st); {
		case errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return false, fmt.Errorf("look at %s: %w", filepath.Join(dir, e.Name()), err)
		}
		if st.Dev == is.Dev && st.Ino == is.Ino {
			return true, nil
		}
	}
	return false, nil
}
