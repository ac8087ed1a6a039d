package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A mount that is to be read-only all the way down is asked of the runtime as that, which refuses what it cannot do.
func TestMountsAreReadOnlyAllTheWayDownS24(t *testing.T) {
	m := &Manager{Root: t.TempDir(), Mounter: Plain{}}
	for mode, want := range map[corev1.RecursiveReadOnlyMode]bool{
		corev1.RecursiveReadOnlyEnabled: true, corev1.RecursiveReadOnlyDisabled: false, corev1.RecursiveReadOnlyIfPossible: false,
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}}}}}
		spec := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &mode}}}
		mounts, err := m.Mounts(t.Context(), p, spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(mounts) != 1 || !mounts[0].Readonly || mounts[0].RecursiveReadOnly != want {
			t.Errorf("%s: %v", mode, mounts)
		}
	}
}
