package volume

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"

	"clusterctl/daemons/api/directory"
)

// claim mounts the persistent volume of a pod's volume. One that is mounted is not asked about again: what becomes of its claim
// does not concern a pod that runs.
func (m *Manager) claim(ctx context.Context, p *corev1.Pod, v *corev1.Volume, dir string) error {
	if mounted, err := m.Mounter.Mounted(dir); err != nil || mounted {
		return err
	}
	pv, err := m.claimed(ctx, p, v)
	if err != nil {
		return err
	}
	if err := m.here(ctx, pv); err != nil {
		return err
	}
	group := fsGroup(p)
	if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly {
		group = nil // who only reads gives nothing away
	}
	options := pv.Spec.MountOptions
	switch {
	case pv.Spec.HostPath != nil && len(options) > 0:
		return fmt.Errorf("persistent volume %s: mount options are not supported for hostPath volumes", pv.Name)
	case pv.Spec.HostPath != nil:
		if err := hostPath(pv.Spec.HostPath); err != nil {
			return err
		}
		group = nil // what is the machine's keeps its owners
		err = m.bind(pv.Spec.HostPath.Path, dir, nil)
	case pv.Spec.Local != nil && directory.Provisioned(pv):
		err = m.provisioned(ctx, p, v, pv.Name, dir)
	case pv.Spec.Local != nil:
		if err := isDirectory(pv.Spec.Local.Path); err != nil {
			return fmt.Errorf("persistent volume %s: %w", pv.Name, err)
		}
		err = m.bind(pv.Spec.Local.Path, dir, options)
	default:
		err = fmt.Errorf("persistent volume %s: only hostPath and local volumes are supported", pv.Name)
	}
	if err != nil {
		return err
	}
	onMismatch := false
	if sc := p.Spec.SecurityContext; sc != nil && sc.FSGroupChangePolicy != nil {
		onMismatch = *sc.FSGroupChangePolicy == corev1.FSGroupChangeOnRootMismatch
	}
	return own(dir, group, onMismatch)
}

// here refuses a volume of other nodes: what lies at its path on this one is something else. The scheduler has looked at that, and
// not every pod comes by it.
func (m *Manager) here(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	labels, err := m.Labels(ctx)
	if err != nil {
		return fmt.Errorf("look whether persistent volume %s is reached from here: %w", pv.Name, err)
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

// isDirectory refuses a local volume that is a file or a device.
func isDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory: a local volume that is a device is not supported by this node", path)
	}
	return nil
}

func (m *Manager) bind(path, dir string, options []string) error {
	if _, err := bindable(options); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return m.Mounter.Bind(path, dir, options)
}
