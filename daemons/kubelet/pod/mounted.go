package pod

import (
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mountStatuses returns the volume mounts for a container's status. For IfPossible, whether a mount is recursively
// read-only depends on how the container was created. c is nil as long as that is unknown.
func mountStatuses(spec *corev1.Container, c *Container) []corev1.VolumeMountStatus {
	var list []corev1.VolumeMountStatus
	for _, m := range spec.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if requested := m.RecursiveReadOnly; requested != nil && (*requested == corev1.RecursiveReadOnlyEnabled ||
				*requested == corev1.RecursiveReadOnlyIfPossible && c != nil &&
					slices.Contains(c.ReadOnly, filepath.Clean(m.MountPath))) {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		list = append(list, s)
	}
	return list
}
