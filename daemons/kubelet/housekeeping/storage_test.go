package housekeeping

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Proves S26.
func TestStorageLimitsApplyToPodsAndContainers(t *testing.T) {
	limit := func(s string) corev1.ResourceRequirements {
		if s == "" {
			return corev1.ResourceRequirements{}
		}
		return corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(s)},
		}
	}
	const mib = 1 << 20
	for name, c := range map[string]struct {
		a, b string // limits
		used diskUsage
		want string
	}{
		"no limits":     {"", "", diskUsage{map[string]int64{"a": 1 << 40}, 1 << 40}, ""},
		"within":        {"2Mi", "2Mi", diskUsage{map[string]int64{"a": mib, "b": mib}, mib}, ""},
		"one container": {"1Mi", "5Mi", diskUsage{map[string]int64{"a": 2 * mib}, 0}, `Container a exceeded its local ephemeral storage limit "1Mi". `},
		"all together": {"2Mi", "2Mi", diskUsage{map[string]int64{"a": mib, "b": mib}, 3 * mib},
			"Pod ephemeral local " +
				"storage usage exceeds the total limit of containers 4Mi. "},
		"the other's beside": {"1Mi", "", diskUsage{map[string]int64{"b": 2 * mib}, 0}, "Pod ephemeral local storage " +
			"usage exceeds the total limit of containers 1Mi. "},
	} {
		p := &corev1.Pod{
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "a", Resources: limit(c.a)}, {Name: "b", Resources: limit(c.b)}},
			},
		}
		if got := storageExcess(p, c.used); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
