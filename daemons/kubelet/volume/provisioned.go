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

// ErrInUse is returned for a volume that a pod of the node still uses, or that is being changed.
var ErrInUse = errors.New("the volume is in use")

// ErrMissing is returned for a volume that was created on this node and whose directory is missing. Its data may be on
// a disk that is not mounted.
var ErrMissing = errors.New("the volume was made on this node, and its directory is not there")

// ErrTooLarge is returned for a size that exceeds the file system.
var ErrTooLarge = errors.New("the file system is smaller")

// mountProvisioned mounts a volume that was provisioned for the claim. It creates the directory the first time. It
// reads the claim again while it holds the volume's turn, so that a volume removed in the meantime is not created
// again.
func (m *Manager) mountProvisioned(ctx context.Context, p *corev1.Pod, v *corev1.Volume, name, dir string) error {
	if err := m.locks.lock(ctx, name); err != nil {
		return err
	}
	defer m.locks.unlock(name)
	pv, err := m.claimVolume(ctx, p, v)
	if err != nil {
		return err
	}
	if err := directory.CheckName(pv.Name); err != nil {
		return err
	}
	if pv.Name != name || pv.Spec.Local == nil || !directory.IsProvisioned(pv) ||
		pv.Spec.Local.Path != directory.Path(name) {
		return fmt.Errorf("persistent volume %s: what %s provisioned lies at %s", pv.Name, directory.Provisioner,
			directory.Path(pv.Name))
	}
	if err := m.checkMissing(pv); err != nil {
		return err
	}
	if err := m.makeProvisioned(name, pv.Spec.Capacity.Storage().Value()); err != nil {
		return fmt.Errorf("make the directory of persistent volume %s: %w", name, err)
	}
	path := filepath.Join(m.Provisioned, name)
	if err := m.checkExclusive(p, pv, path); err != nil {
		return err
	}
	return m.mountOwned(p, v, path, dir, pv.Spec.MountOptions)
}

// checkMissing returns an error for a missing volume that was created earlier. Another machine with this node's name
// may have created it, or this machine before it was reinstalled. The claim had data, which an empty directory would
// hide.
func (m *Manager) checkMissing(pv *corev1.PersistentVolume) error {
	if exists, err := m.hasVolume(pv.Name); err != nil || exists {
		return err
	}
	if reason, reasonCode := m.missingReason(pv.Annotations[directory.UsedAnnotation] != "",
		pv.Annotations[directory.MachineAnnotation]); reason != "" {
		return fmt.Errorf("persistent volume %s: %w: %s; bring the directory back, or, if the data is gone for good, "+
			"delete the claim or take the %s off the volume to have an empty one", pv.Name, ErrMissing, reason,
			reasonCode)
	}
	return nil
}

// missingReason returns why the data of a missing volume may be on another machine or disk, and the names of the
// annotations that indicate this. made means that a pod has used the volume. machine is the ID of the machine where it
// was provisioned. An empty why means that the volume was never created.
func (m *Manager) missingReason(made bool, machine string) (reason, reasonCode string) {
	switch {
	case made:
		return fmt.Sprintf("the machine was installed again, or its disk is not mounted at %s", m.Provisioned),
			"annotations " + directory.UsedAnnotation + " and " + directory.MachineAnnotation
	case machine != "" && m.MachineID != "" && machine != m.MachineID:
		return fmt.Sprintf("it was provisioned on machine %s, and this is %s", machine,
			m.MachineID), "annotation " + directory.MachineAnnotation
	}
	return "", ""
}

// makeProvisioned creates a volume's directory. It is open to all users like an emptyDir, because its parent directory
// protects it and only mounts give access. If the directory exists, its size limit is set. A directory that was created
// and is missing is not created again: the pod would believe that its data was never written.
func (m *Manager) makeProvisioned(name string, bytes int64) error {
	path := filepath.Join(m.Provisioned, name)
	switch exists, err := m.hasVolume(name); {
	case err != nil:
		return err
	case exists:
		if err := m.limitSize(name, path, bytes); err != nil {
			return err
		}
		return records(m.Root).recordCreated(name)
	}
	if err := os.MkdirAll(m.Provisioned, 0o700); err != nil {
		return err
	}
	half := m.stagingDir(name)
	if err := m.eraseVolume(half); err != nil {
		return err
	}
	if err := os.Mkdir(half, 0o700); err != nil {
		return err
	}
	if err := m.limitSize(name, half, bytes); err != nil {
		return err
	}
	if err := os.Chmod(half, 0o777); err != nil { // regardless of the umask
		return err
	}
	if err := os.Rename(half, path); err != nil {
		return err
	}
	if err := syncDir(m.Provisioned); err != nil {
		return err
	}
	return records(m.Root).recordCreated(name)
}

// hasVolume reports whether a volume's directory exists. It returns ErrMissing if the directory was created but is
// missing.
func (m *Manager) hasVolume(name string) (bool, error) {
	path := filepath.Join(m.Provisioned, name)
	switch info, err := os.Lstat(path); {
	case err == nil && !info.IsDir():
		return false, fmt.Errorf("%s is not a directory", path)
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	switch _, err := os.Lstat(records(m.Root).created(name)); {
	case err == nil:
		return false, fmt.Errorf("%w: see that what was mounted at %s or above is mounted, or remove %s if "+
			"the data is gone for good", ErrMissing, m.Provisioned, records(m.Root).created(name))
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	return false, nil
}

// stagingDir returns the path of a volume's directory until it is ready. The names of volumes do not start with a dot.
func (m *Manager) stagingDir(name string) string { return filepath.Join(m.Provisioned, "..new-"+name) }

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
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

// limitSize limits the size of a volume's directory if the file system supports that.
func (m *Manager) limitSize(name, path string, bytes int64) error {
	if m.Projects == nil {
		return nil
	}
	err := m.Projects.Limit(path, bytes)
	if errors.Is(err, ErrNoQuota) {
		if m.OnUnbounded != nil {
			m.OnUnbounded(name, err)
		}
		return nil
	}
	return err
}

// GrowProvisioned raises the limit of a volume. If no pod has used the volume yet, there is nothing to do, because the
// first pod creates it with the current size. It returns ErrTooLarge if the size exceeds the file system.
func (m *Manager) GrowProvisioned(name string, bytes int64) error {
	if err := directory.CheckName(name); err != nil {
		return err
	}
	if !m.locks.tryLock(name) {
		return ErrInUse
	}
	defer m.locks.unlock(name)
	exists, err := m.hasVolume(name)
	if err != nil || !exists {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(m.Provisioned, &st); err != nil {
		return fmt.Errorf("look how large the file system of %s is: %w", m.Provisioned, err)
	}
	if size := int64(st.Blocks) * st.Bsize; size < bytes {
		return fmt.Errorf("%w: it has %d bytes at %s, and the volume is to have %d", ErrTooLarge, size, m.Provisioned,
			bytes)
	}
	return m.limitSize(name, filepath.Join(m.Provisioned, name), bytes)
}

// RemoveProvisioned removes the directory of a provisioned volume with its contents. It succeeds if the volume was
// never created. It returns ErrInUse while a pod uses the volume. It returns ErrMissing if the volume was created but
// is missing. That is known from the notes of this node, or from the volume's annotations: made means that a pod has
// used it, and machine is where it was provisioned.
func (m *Manager) RemoveProvisioned(name string, made bool, machine string) error {
	if err := directory.CheckName(name); err != nil {
		return err
	}
	if !m.locks.tryLock(name) {
		return ErrInUse
	}
	defer m.locks.unlock(name)
	path := filepath.Join(m.Provisioned, name)
	users, err := m.usersOf(path)
	if err != nil {
		return fmt.Errorf("look who uses volume %s: %w", name, err)
	}
	if len(users) > 0 {
		return fmt.Errorf("%w by pods with the uids %q", ErrInUse, users)
	}
	if err := m.eraseVolume(m.stagingDir(name)); err != nil {
		return fmt.Errorf("remove the remaining files of volume %s: %w", name, err)
	}
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		return removeTree(path)
	}
	exists, err := m.hasVolume(name)
	if err != nil {
		return err
	}
	if !exists && !records(m.Root).wasRemoved(name) {
		if reason, reasonCode := m.missingReason(made, machine); reason != "" {
			return fmt.Errorf("%w: %s; bring the directory back to have it removed, or, if the data is gone for good, "+
				"take the %s off the volume", ErrMissing, reason, reasonCode)
		}
	}
	if !exists {
		return nil
	}
	err = removeTreeAfter(path, func() error {
		if err := m.releaseProject(path); err != nil {
			return err
		}
		return records(m.Root).recordRemoval(name)
	})
	if err != nil {
		return fmt.Errorf("remove volume %s: %w", name, err)
	}
	return nil
}

// eraseVolume removes a directory. It releases the directory's project once it is empty.
func (m *Manager) eraseVolume(path string) error {
	return removeTreeAfter(path, func() error { return m.releaseProject(path) })
}

func (m *Manager) releaseProject(path string) error {
	if m.Projects == nil {
		return nil
	}
	return m.Projects.Release(path)
}

// usersOf returns the UIDs of the pods that have a volume mounted in their directory. A mount has the same device and
// inode as its source. It also finds pods that are otherwise unknown.
func (m *Manager) usersOf(path string) ([]string, error) {
	var stat unix.Stat_t
	switch err := unix.Lstat(path, &stat); {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	uids, err := m.Pods()
	if err != nil {
		return nil, err
	}
	var users []string
	for _, uid := range uids {
		for _, volumes := range []string{"volumes", "volumeDevices"} {
			after, err := hasFile(filepath.Join(m.PodDir(uid), volumes, pluginDir(&corev1.Volume{})), &stat)
			if err != nil {
				return nil, err
			}
			if after && !slices.Contains(users, uid) {
				users = append(users, uid)
			}
		}
	}
	return users, nil
}

// hasFile reports whether an entry of a directory is the same file by device and inode.
func hasFile(dir string, stat *unix.Stat_t) (bool, error) {
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
			return false, fmt.Errorf("read %s: %w", filepath.Join(dir, e.Name()), err)
		}
		if st.Dev == stat.Dev && st.Ino == stat.Ino {
			return true, nil
		}
	}
	return false, nil
}
