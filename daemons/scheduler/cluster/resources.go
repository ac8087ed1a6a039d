package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Resources are amounts of what nodes have and pods ask for.
type Resources struct {
	MilliCPU, Memory, Ephemeral int64 // thousandths of a core, bytes, bytes
	Pods                        int64 // how many a node takes
	Other                       map[corev1.ResourceName]int64
}

// What a container without requests is taken to use, for scores only.
var usualRequests = corev1.ResourceList{
	corev1.ResourceCPU:    *quantity.NewMilliQuantity(100, quantity.DecimalSI),
	corev1.ResourceMemory: *quantity.NewQuantity(200<<20, quantity.BinarySI),
}

func resourcesOf(list corev1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			r.MilliCPU = q.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			r.Ephemeral = q.Value()
		case corev1.ResourcePods:
			r.Pods = q.Value()
		default:
			if r.Other == nil {
				r.Other = map[corev1.ResourceName]int64{}
			}
			r.Other[name] = q.Value()
		}
	}
	return r
}

// Of is the amount of one resource.
func (r *Resources) Of(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return r.MilliCPU
	case corev1.ResourceMemory:
		return r.Memory
	case corev1.ResourceEphemeralStorage:
		return r.Ephemeral
	case corev1.ResourcePods:
		return r.Pods
	}
	return r.Other[name]
}

func (r *Resources) add(o *Resources, times int64) {
	r.MilliCPU += times * o.MilliCPU
	r.Memory += times * o.Memory
	r.Ephemeral += times * o.Ephemeral
	for name, n := range o.Other {
		if r.Other == nil {
			r.Other = map[corev1.ResourceName]int64{}
		}
		r.Other[name] += times * n
	}
}

func (r *Resources) equal(o *Resources) bool {
	return r.MilliCPU == o.MilliCPU && r.Memory == o.Memory && r.Ephemeral == o.Ephemeral && r.Pods == o.Pods &&
		maps.Equal(r.Other, o.Other)
}

// asked is what a pod without a node asks for.
func asked(pod *corev1.Pod, usual corev1.ResourceList) Resources {
	return resourcesOf(
		resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{NonMissingContainerRequests: usual}),
	)
}

// limits are what a pod may use at most.
func limits(pod *corev1.Pod) Resources {
	return resourcesOf(resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}))
}

// Named returns the amounts that are not zero, by the names of their resources. CPU is in thousandths of a core.
func (r *Resources) Named() map[corev1.ResourceName]int64 {
	all := maps.Clone(r.Other)
	if all == nil {
		all = map[corev1.ResourceName]int64{}
	}
	all[corev1.ResourceCPU], all[corev1.ResourceMemory], all[corev1.ResourceEphemeralStorage] = r.MilliCPU, r.Memory,
		r.Ephemeral
	maps.DeleteFunc(all, func(_ corev1.ResourceName, n int64) bool { return n == 0 })
	return all
}

// used is what a pod takes of its node: while it is resized, the most of what it wants, what its node gave it and what
// it runs with.
func used(pod *corev1.Pod, usual corev1.ResourceList) Resources {
	return resourcesOf(usedList(pod, usual))
}

func usedList(pod *corev1.Pod, usual corev1.ResourceList) corev1.ResourceList {
	containers := *pod
	containers.Status.Resources, containers.Status.AllocatedResources = nil, nil
	sum := resourcehelper.PodRequests(&containers, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, SkipPodLevelResources: true, ExcludeOverhead: true,
		NonMissingContainerRequests: usual,
	})
	if resourcehelper.IsPodLevelRequestsSet(pod) {
		for name, q := range usedAsAWhole(pod) {
			if resourcehelper.IsSupportedPodLevelResource(name) {
				sum[name] = q
			}
		}
	}
	for name, q := range pod.Spec.Overhead {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
	return sum
}

// usedAsAWhole is the same of what the pod asks for instead of its containers.
func usedAsAWhole(pod *corev1.Pod) corev1.ResourceList {
	if pod.Status.Resources == nil {
		return pod.Spec.Resources.Requests
	}
	out := corev1.ResourceList{}
	raise := func(list corev1.ResourceList) {
		for name, q := range list {
			if have, ok := out[name]; !ok || q.Cmp(have) > 0 {
				out[name] = q
			}
		}
	}
	raise(pod.Status.Resources.Requests)
	raise(pod.Status.AllocatedResources)
	if !resourcehelper.IsPodResizeInfeasible(pod) {
		raise(pod.Spec.Resources.Requests)
	}
	return out
}

// usualOf is what containers of a pod on a node count with that ask for nothing: where the pod asks as a whole, only
// for what nobody in it names.
func usualOf(pod *corev1.Pod) corev1.ResourceList {
	if !resourcehelper.IsPodLevelRequestsSet(pod) {
		return usualRequests
	}
	usual := maps.Clone(usualRequests)
	for name := range usedList(pod, nil) {
		delete(usual, name)
	}
	return usual
}

// reportsResources reports whether the kubelet has said anything of a pod's resources that may differ from what it asks
// for.
func reportsResources(pod *corev1.Pod) bool {
	if pod.Status.Resources != nil || len(pod.Status.AllocatedResources) > 0 ||
		resourcehelper.IsPodResizeInfeasible(pod) {
		return true
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Resources != nil || len(list[i].AllocatedResources) > 0 {
				return true
			}
		}
	}
	return false
}
