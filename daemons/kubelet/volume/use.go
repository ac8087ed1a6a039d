package volume

import (
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Use is the usage of a claim's volume, in bytes and inodes.
type Use struct{ Capacity, Used, Available, Inodes, InodesUsed, InodesFree uint64 }

// Use returns the usage of a pod's volume of a claim. It is the volume's own quota if it has one, otherwise the usage
// of the file system.
func (m *Manager) Use(p *corev1.Pod, v *corev1.Volume) (Use, error) {
	dir := m.volumeDir(p, v)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Use{}, fmt.Errorf("look how full %s is: %w", dir, err)
	}
	size := uint64(st.Bsize)
	u := Use{Capacity: st.Blocks * size, Used: (st.Blocks - st.Bfree) * size, Available: st.Bavail * size,
		Inodes: st.Files, InodesUsed: st.Files - st.Ffree, InodesFree: st.Ffree}
	if m.Projects == nil {
		return u, nil
	}
	q, err := m.Projects.Quota(dir)
	if err != nil {
		return u, nil // the directory has no quota
	}
	return Use{Capacity: q.Bytes, Used: q.UsedBytes, Available: min(u.Available, remainingOf(q.Bytes, q.UsedBytes)),
			Inodes: q.Inodes, InodesUsed: q.UsedInodes,
			InodesFree: min(u.InodesFree, remainingOf(q.Inodes, q.UsedInodes))},
		nil
}

func remainingOf(limit, used uint64) uint64 { return limit - min(limit, used) }
