package volume

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A recursive read-only mount is requested from the runtime, which rejects it if it is not supported. If it is
// optional, the runtime's support is checked first.
// Proves S24.
func TestRecursiveReadOnlyMounts(t *testing.T) {
	m := &Manager{Root: t.TempDir(), Mounter: Plain{}}
	const enabled, disabled, ifPossible = corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyDisabled,
		corev1.RecursiveReadOnlyIfPossible
	down := errors.New("the runtime is down")
	for _, c := range []struct {
		mode  corev1.RecursiveReadOnlyMode
		can   bool
		fails error
		want  bool
	}{
		{enabled, false, nil, true}, {enabled, true, down, true}, {disabled, true, down, false},
		{ifPossible, true, nil, true}, {ifPossible, false, nil, false}, {ifPossible, true, down, false},
	} {
		p := &corev1.Pod{
			Spec: corev1.PodSpec{
				Volumes: []corev1.Volume{
					{
						Name:         "v",
						VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
					},
				},
			},
		}
		spec := &corev1.Container{
			Name: "c",
			VolumeMounts: []corev1.VolumeMount{
				{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &c.mode},
			},
		}
		mounts, err := m.Mounts(p, spec, nil, func() (bool, error) { return c.can, c.fails })
		if c.mode == ifPossible && c.fails != nil {
			if err == nil || !strings.Contains(err.Error(), down.Error()) {
				t.Errorf("%s, when the support of the runtime is unknown: %v", c.mode, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(mounts) != 1 || !mounts[0].Readonly || mounts[0].RecursiveReadOnly != c.want {
			t.Errorf("%s, and it can be: %v: %v", c.mode, c.can, mounts)
		}
	}
}

// If a sub-path cannot be resolved, the whole volume is not mounted instead.
func TestAnUnresolvedSubPathIsNotMounted(t *testing.T) {
	m := &Manager{Root: t.TempDir(), Mounter: Plain{}}
	for name, v := range map[string]corev1.VolumeSource{
		"a directory": {HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}},
		"an image":    {Image: &corev1.ImageVolumeSource{Reference: "i"}},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: v}}}}
		spec := &corev1.Container{
			Name:         "c",
			VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPathExpr: "$(A)"}},
		}
		mounts, err := m.Mounts(p, spec, func(string) (string, error) { return "", errors.New("missing value for A") },
			nil)
		if err == nil || !strings.Contains(err.Error(), "missing value for A") {
			t.Errorf("%s: %v, %v", name, mounts, err)
		}
	}
}
