package volume

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/directory"
)

// ErrInUse is returned for a volume that a pod of the node still has, or that is being changed at the moment.
var ErrInUse = errors.New("the volume is in use")

// lock is the turn of who mounts or removes a provisioned volume.
func (m *Manager) lock(name string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return &m.changing[h.Sum32()%uint32(len(m.changing))]
}

// provisioned mounts a volume that was made for the claim, and makes its directory where it is missing. The claim is asked about
// again in turn with Remove: a volume that was given up meanwhile is not made anew behind the back of who removed it.
func (m *Manager) provisioned(ctx context.Context, p *corev1.Pod, v *corev1.Volume, name, dir string) error {
	turn := m.lock(name)
	turn.Lock()
	defer turn.Unlock()
	pv, err := m.claimed(ctx, p, v)
	if err != nil {
		return err
	}
	if err := directory.CheckName(pv.Name); err != nil {
		return err
	}
	if pv.Name != name || pv.Spec.Local == nil || !directory.Provisioned(pv) || pv.Spec.Local.Path != directory.Path(name) {
		return fmt.Errorf("persistent volume %s: what %s provisioned lies at %s", pv.Name, directory.Provisioner, directory.Path(pv.Name))
	}
	if err := m.makeProvisioned(name); err != nil {
		return fmt.Errorf("make the directory of persistent volume %s: %w", name, err)
	}
	return m.bind(filepath.Join(m.Provisioned, name), dir)
}

// makeProvisioned makes a volume's directory, open to all as one of a pod's own is: who gets at it is decided by who mounts it, since
// nobody else comes past the directory that it is in.
func (m *Manager) makeProvisioned(name string) error {
	path := filepath.Join(m.Provisioned, name)
	switch info, err := os.Lstat(path); {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(m.Provisioned, 0o700); err != nil {
		return err
	}
	// A name of a volume does not begin with a dot.
	half := filepath.Join(m.Provisioned, "..new-"+name)
	if err := removeTree(half); err != nil {
		return err
	}
	if err := os.Mkdir(half, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(half, 0o777); err != nil { // past the umask
		return err
	}
	return os.Rename(half, path)
}

// RemoveProvisioned removes the directory of a provisioned volume with what is in it. One that is not there is removed. It returns
// ErrInUse while a pod has the volume.
func (m *Manager) RemoveProvisioned(name string) error {
	if err := directory.CheckName(name); err != nil {
		return err
	}
	turn := m.lock(name)
	if !turn.TryLock() {
		return ErrInUse
	}
	defer turn.Unlock()
	path := filepath.Join(m.Provisioned, name)
	users, err := m.usersOf(path)
	if err != nil {
		return fmt.Errorf("look who uses volume %s: %w", name, err)
	}
	if len(users) > 0 {
		return fmt.Errorf("%w by pods with the uids %q", ErrInUse, users)
	}
	if err := removeTree(path); err != nil {
		return fmt.Errorf("remove volume %s: %w", name, err)
	}
	return nil
}

// usersOf returns the uids of pods in whose directory a volume is mounted: what is mounted is the very directory. That holds for
// pods of which nothing else is known any more, too.
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
		at := filepath.Join(m.PodDir(uid), "volumes", kind(&corev1.Volume{}))
		entries, err := os.ReadDir(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			var st unix.Stat_t
			switch err := unix.Lstat(filepath.Join(at, e.Name()), &st); {
			case errors.Is(err, unix.ENOENT):
				continue
			case err != nil:
				return nil, fmt.Errorf("look at %s: %w", filepath.Join(at, e.Name()), err)
			}
			if st.Dev == is.Dev && st.Ino == is.Ino {
				users = append(users, uid)
				break
			}
		}
	}
	return users, nil
}
