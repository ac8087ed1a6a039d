package volume

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

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
	group := fsGroup(p)
	switch {
	case pv.Spec.HostPath != nil:
		if err := hostPath(pv.Spec.HostPath); err != nil {
			return err
		}
		group = nil // what is the machine's keeps its owners
		err = m.bind(pv.Spec.HostPath.Path, dir)
	case pv.Spec.Local != nil && directory.Provisioned(pv):
		err = m.provisioned(ctx, p, v, pv.Name, dir)
	case pv.Spec.Local != nil:
		err = m.bind(pv.Spec.Local.Path, dir)
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

func (m *Manager) bind(path, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return m.Mounter.Bind(path, dir, false)
}
