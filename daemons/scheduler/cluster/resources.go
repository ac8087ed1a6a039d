package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Resources are amounts that nodes have or pods request.
type Resources struct {
	MilliCPU, Memory, Ephemeral int64 // millicores, bytes, bytes
	Pods                        int64 // number of pods
	Other                       map[corev1.ResourceName]int64
}

// defaultRequests is the assumed use of a container without requests. Only scores count it.
var defaultRequests = corev1.ResourceList{
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

// Amount returns the amount of one resource.
func (r *Resources) Amount(name corev1.ResourceName) int64 {
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

// requestsOf returns the requests of a pod without a node.
func requestsOf(pod *corev1.Pod, defaults corev1.ResourceList) Resources {
	return resourcesOf(resourcehelper.PodRequests(pod,
		resourcehelper.PodResourcesOptions{NonMissingContainerRequests: defaults}))
}

// limitsOf returns a pod's limits.
func limitsOf(pod *corev1.Pod) Resources {
	return resourcesOf(resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}))
}

// NonZero returns the amounts that are not zero, by resource name. CPU is in millicores.
func (r *Resources) NonZero() map[corev1.ResourceName]int64 {
	all := maps.Clone(r.Other)
	if all == nil {
		all = map[corev1.ResourceName]int64{}
	}
	all[corev1.ResourceCPU], all[corev1.ResourceMemory], all[corev1.ResourceEphemeralStorage] = r.MilliCPU, r.Memory,
		r.Ephemeral
	maps.DeleteFunc(all, func(_ corev1.ResourceName, n int64) bool { return n == 0 })
	return all
}

// usageOf returns what a pod uses of its node. During a resize, it is the maximum of what the pod requests, what is
// allocated and what is in effect.
func usageOf(pod *corev1.Pod, defaults corev1.ResourceList) Resources {
	return resourcesOf(usageList(pod, defaults))
}

func usageList(pod *corev1.Pod, defaults corev1.ResourceList) corev1.ResourceList {
	containers := *pod
	containers.Status.Resources, containers.Status.AllocatedResources = nil, nil
	sum := resourcehelper.PodRequests(&containers, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, SkipPodLevelResources: true, ExcludeOverhead: true,
		NonMissingContainerRequests: defaults,
	})
	if resourcehelper.IsPodLevelRequestsSet(pod) {
		for name, q := range podLevelUsage(pod) {
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

// podLevelUsage is like usageOf, for pod-level requests.
func podLevelUsage(pod *corev1.Pod) corev1.ResourceList {
	if pod.Status.Resources == nil {
		return pod.Spec.Resources.Requests
	}
	out := corev1.ResourceList{}
	raise := func(list corev1.ResourceList) {
		for name, q := range list {
			if current, ok := out[name]; !ok || q.Cmp(current) > 0 {
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

// defaultRequestsOf returns the assumed use of containers without requests. For pod-level requests, it covers only
// resources that nothing in the pod requests.
func defaultRequestsOf(pod *corev1.Pod) corev1.ResourceList {
	if !resourcehelper.IsPodLevelRequestsSet(pod) {
		return defaultRequests
	}
	defaults := maps.Clone(defaultRequests)
	for name := range usageList(pod, nil) {
		delete(defaults, name)
	}
	return defaults
}

// hasReportedResources reports whether the kubelet reports resources of a pod that may differ from its requests.
func hasReportedResources(pod *corev1.Pod) bool {
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
