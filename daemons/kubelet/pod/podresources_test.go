package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func resourceList(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// The status of a pod has its total resources, also for pods without pod-level resources.
func TestPodStatusReportsPodLevelResources(t *testing.T) {
	text := func(list corev1.ResourceList) string {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(list)) {
			q := list[name]
			words = append(words, string(name)+" "+q.String())
		}
		return strings.Join(words, " ")
	}
	two := func(first, second corev1.ResourceRequirements) []corev1.Container {
		a, b := testContainer("m"), testContainer("o")
		a.Resources, b.Resources = first, second
		return []corev1.Container{a, b}
	}
	limited := corev1.ResourceRequirements{
		Requests: resourceList("cpu", "100m", "memory", "64Mi"),
		Limits:   resourceList("cpu", "1", "memory", "128Mi"),
	}
	unlimited := corev1.ResourceRequirements{Requests: resourceList("cpu", "50m")}
	for name, c := range map[string]struct {
		containers []corev1.Container
		pod        *corev1.ResourceRequirements
		overhead   corev1.ResourceList
		runs       bool
		want       string // allocated | requests | limits
	}{
		"nothing is asked for": {two(corev1.ResourceRequirements{}, corev1.ResourceRequirements{}), nil, nil, true,
			"||"},
		"all containers are limited": {two(limited, limited), nil, nil, true, "cpu 200m memory 128Mi|cpu 200m " +
			"memory 128Mi|cpu 2 memory 256Mi"},
		"one is not limited": {two(limited, unlimited), nil, nil, true, "cpu 150m memory 64Mi|cpu 150m " +
			"memory 64Mi|"},
		"one is not limited, and it waits": {two(limited, unlimited), nil, nil, false, "cpu 150m memory 64Mi|cpu " +
			"150m memory 64Mi|cpu 1 memory 128Mi"},
		"the pod itself is limited": {two(limited, unlimited),
			&corev1.ResourceRequirements{Requests: resourceList("cpu", "1"), Limits: resourceList("memory", "1Gi")},
			nil, true,
			"cpu 1 memory 64Mi|cpu 1 memory 64Mi|memory 1Gi"},
		"with what running it costs": {two(limited, limited), nil, resourceList("cpu", "10m", "memory", "8Mi"), true,
			"cpu 210m memory 136Mi|cpu 210m memory 136Mi|cpu 2010m memory 264Mi"},
	} {
		s := Status(runningFacts(func(f *Facts) {
			f.Pod.Spec.Containers, f.Pod.Spec.Resources, f.Pod.Spec.Overhead = c.containers, c.pod, c.overhead
			if c.runs {
				f.Containers = []Container{attemptOf("m", 0, Running, 0, 0), attemptOf("o", 0, Running, 0, 0)}
			}
		}))
		if s.Resources == nil {
			t.Errorf("%s: nothing is said", name)
			continue
		}
		if got := fmt.Sprint(text(s.AllocatedResources), "|", text(s.Resources.Requests), "|",
			text(s.Resources.Limits)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
