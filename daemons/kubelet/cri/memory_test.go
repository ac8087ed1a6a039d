package cri

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Proves S25.
func TestContainersHaveCgroupFilesForMemory(t *testing.T) {
	of := func(request, limit string) corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{}
		for list, q := range map[*corev1.ResourceList]string{&r.Requests: request, &r.Limits: limit} {
			if q != "" {
				*list = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(q),
					corev1.ResourceCPU: resource.MustParse("1")}
			}
		}
		return r
	}
	const allocatable = 1000 << 20
	all := &Memory{KillGroup: true, Reserve: true, Throttle: 0.5, Allocatable: allocatable}
	for name, row := range map[string]struct {
		memory    *Memory
		resources corev1.ResourceRequirements
		want      map[string]string
	}{
		"version 1": {nil, of("64Mi", "64Mi"), nil},
		"by default": {&Memory{KillGroup: true}, of("64Mi", "128Mi"),
			map[string]string{"memory.oom.group": "1"}},
		"single processes are killed": {&Memory{}, of("64Mi", "128Mi"), nil},
		"guaranteed": {all, of("64Mi", "64Mi"),
			map[string]string{"memory.oom.group": "1", "memory.min": "67108864"}},
		"burstable": {all, of("64Mi", "128Mi"),
			map[string]string{"memory.oom.group": "1", "memory.low": "67108864", "memory.high": "100663296"}},
		"burstable without a limit": {all, of("200Mi", ""),
			map[string]string{"memory.oom.group": "1", "memory.low": "209715200", "memory.high": "629145600"}},
		"burstable with its limit at once": {&Memory{Throttle: 0.9}, of("64Mi", "64Mi"), nil},
		"best effort": {all, of("", ""),
			map[string]string{"memory.oom.group": "1", "memory.high": "524288000"}},
		"whole pages": {&Memory{Throttle: 0.3}, of("1000", "100000"),
			map[string]string{"memory.high": "28672"}},
		"less than a page": {&Memory{Throttle: 0.3}, of("1000", "2000"), nil},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: row.resources}}}}
		if got := row.memory.CgroupFiles(p, &p.Spec.Containers[0]); !maps.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestAResizedContainerIsNoLongerThrottled(t *testing.T) {
	list := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for name, row := range map[string]struct {
		memory         *Memory
		request, limit string
		want           map[string]string
	}{
		"version 1":       {nil, "64Mi", "64Mi", nil},
		"never":           {&Memory{}, "64Mi", "64Mi", nil},
		"still":           {&Memory{Throttle: 0.5}, "64Mi", "128Mi", map[string]string{"memory.high": "100663296"}},
		"not any more":    {&Memory{Throttle: 0.5}, "64Mi", "64Mi", map[string]string{"memory.high": "max"}},
		"less than pages": {&Memory{Throttle: 0.5}, "1000", "2000", map[string]string{"memory.high": "max"}},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
			Resources: corev1.ResourceRequirements{Requests: list(row.request), Limits: list(row.limit)}}}}}
		if got := row.memory.ResizedFiles(p, &p.Spec.Containers[0]); !maps.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}
