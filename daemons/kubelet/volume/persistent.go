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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"

	"clusterctl/daemons/api/directory"
)

// mountClaim mounts the persistent volume of a pod's volume. If it is already mounted, the claim is not read again,
// because later changes of the claim do not affect a running pod.
func (m *Manager) mountClaim(ctx context.Context, p *corev1.Pod, v *corev1.Volume, dir string) error {
	for _, at := range []string{dir, m.deviceFile(p, v)} {
		if mounted, err := m.Mounter.IsMounted(at); err != nil || mounted {
			return err
		}
	}
	pv, err := m.claimVolume(ctx, p, v)
	if err != nil {
		return err
	}
	if err := m.checkNode(ctx, pv); err != nil {
		return err
	}
	if pv.Spec.Local != nil && directory.IsProvisioned(pv) && !isBlock(pv) {
		return m.mountProvisioned(ctx, p, v, pv.Name, dir)
	}
	// Prevent two pods from getting a ReadWriteOncePod volume at the same time.
	if err := m.locks.lock(ctx, pv.Name); err != nil {
		return err
	}
	defer m.locks.unlock(pv.Name)
	options := pv.Spec.MountOptions
	switch {
	case isBlock(pv):
		return m.mountDevice(p, pv, m.deviceFile(p, v))
	case pv.Spec.HostPath != nil && len(options) > 0:
		return fmt.Errorf("persistent volume %s: mount options are not supported for hostPath volumes", pv.Name)
	case pv.Spec.HostPath != nil:
		path := pv.Spec.HostPath.Path
		if err := checkHostPath(pv.Spec.HostPath); err != nil {
			return err
		}
		if kind := pv.Spec.HostPath.Type; kind == nil || *kind == corev1.HostPathUnset {
			// Runtimes create the path for a pod's own checkHostPath volume without a type, so do the same here.
			if err := m.Mounter.MakeDir(path); err != nil {
				return fmt.Errorf("persistent volume %s: %w", pv.Name, err)
			}
		}
		if err := m.checkExclusive(p, pv, path); err != nil {
			return err
		}
		return m.bindMount(path, dir, nil) // files of the machine keep their owners
	case pv.Spec.Local != nil:
		device, err := isDevice(pv.Spec.Local.Path)
		if err != nil {
			return fmt.Errorf("persistent volume %s: %w", pv.Name, err)
		}
		if device {
			return m.mountFileSystem(ctx, p, v, pv, dir)
		}
		if err := m.checkExclusive(p, pv, pv.Spec.Local.Path); err != nil {
			return err
		}
		return m.mountOwned(p, v, pv.Spec.Local.Path, dir, options)
	}
	return fmt.Errorf("persistent volume %s: only hostPath and local volumes are supported", pv.Name)
}

// checkExclusive returns an error if another pod of the node already uses a ReadWriteOncePod volume. The scheduler
// checks that too, but not every pod passes the scheduler. The caller holds the volume's turn.
func (m *Manager) checkExclusive(p *corev1.Pod, pv *corev1.PersistentVolume, path string) error {
	if !slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteOncePod) {
		return nil
	}
	path, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a path that does not exist is not used
	}
	if err != nil {
		return err
	}
	users, err := m.usersOf(path)
	if err != nil {
		return fmt.Errorf("look who uses persistent volume %s: %w", pv.Name, err)
	}
	if slices.ContainsFunc(users, func(uid string) bool { return uid != string(p.UID) }) {
		return errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	return nil
}

// mountOwned bind-mounts a directory for a pod after its contents were given to the pod's group. The order matters,
// because an existing mount is considered complete.
func (m *Manager) mountOwned(p *corev1.Pod, v *corev1.Volume, path, dir string, options []string) error {
	flags, err := bindFlags(options)
	if err != nil {
		return err
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	// A pod that only reads does not change owners.
	if readOnly := flags&unix.MS_RDONLY != 0 || v.PersistentVolumeClaim != nil &&
		v.PersistentVolumeClaim.ReadOnly; !readOnly {
		if err := setGroup(path, fsGroup(p), isOnRootMismatch(p)); err != nil {
			return err
		}
	}
	return m.bindMount(path, dir, options)
}

// checkNode returns an error if the volume does not belong to this node. Its path would be something else here. The
// scheduler checks that too, but not every pod passes the scheduler.
func (m *Manager) checkNode(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	labels, err := m.Labels(ctx)
	if err != nil {
		return fmt.Errorf("check whether persistent volume %s is reached from here: %w", pv.Name, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Node().Name, Labels: labels}}
	matches, err := scheduling.MatchNodeSelectorTerms(node, pv.Spec.NodeAffinity.Required)
	if err == nil && !matches {
		err = errors.New("no matching NodeSelectorTerms")
	}
	if err != nil {
		return fmt.Errorf("persistent volume %s: node affinity check failed: %w", pv.Name, err)
	}
	return nil
}

func (m *Manager) bindMount(path, dir string, options []string) error {
	info, err := os.Stat(path)
	if err := makeTarget(dir, err != nil || info.IsDir()); err != nil {
		return err
	}
	return m.Mounter.Bind(path, dir, options)
}
