package kinds

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestValidationCostIsProportionalToSize checks that fields that a client can make long cost memory in proportion to
// their length, and not to its square.
// Proves S12.
func TestValidationCostIsProportionalToSize(t *testing.T) {
	const many = 1000
	ports := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	files := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v"}}}}
	projected := &corev1.ProjectedVolumeSource{}
	endpoints := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{}}}
	for i := range many {
		ports.Spec.Containers[0].Ports = append(ports.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 80})
		projected.Sources = append(projected.Sources,
			corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}})
		s := &endpoints.Subsets[0]
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)})
		s.Ports = append(s.Ports, corev1.EndpointPort{Port: int32(i + 1)})
	}
	files.Spec.Volumes[0].Projected = projected
	printed := func() string { return kindOf(t, "Endpoints").Row(endpoints)[0].(string) }
	for name, do := range map[string]func() int{
		"ports of a pod that are the same":      func() int { return len(kindOf(t, "Pod").Warnings(ports, nil)) },
		"files of a volume that are the same":   func() int { return len(kindOf(t, "Pod").Warnings(files, nil)) },
		"the printed addresses of an Endpoints": func() int { return len(printed()) },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n := do()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Errorf("%s: %d bytes were allocated for %d", name, took, n)
		}
	}
	if got, want := printed(), "10.0.0.1:1,10.0.0.2:1,10.0.0.3:1 + 999997 more..."; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
