package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// podResources returns a pod's resources for its status: the allocated requests, and the requests and limits in effect.
// For a running pod, a limit is included only if all containers have one or the pod-level resources set it.
func podResources(p *corev1.Pod, phase corev1.PodPhase) (corev1.ResourceList, *corev1.ResourceRequirements) {
	r := &corev1.ResourceRequirements{}
	if p.Spec.Resources != nil {
		r = p.Spec.Resources.DeepCopy()
	}
	allocated := resource.PodRequests(p, resource.PodResourcesOptions{})
	requests, limits := allocated.DeepCopy(), resource.PodLimits(p, resource.PodResourcesOptions{})
	if phase != corev1.PodRunning {
		r.Requests, r.Limits = requests, limits
		return allocated, r
	}
	set := func(list *corev1.ResourceList, from corev1.ResourceList, name corev1.ResourceName) {
		q, ok := from[name]
		if !ok || q.IsZero() {
			return
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		set(&r.Requests, requests, name)
		if hasPodLimit(p, name) {
			set(&r.Limits, limits, name)
		}
	}
	return allocated, r
}

// hasPodLimit reports whether a limit exists for all containers of a pod together.
func hasPodLimit(p *corev1.Pod, name corev1.ResourceName) bool {
	if p.Spec.Resources != nil {
		if limit := p.Spec.Resources.Limits[name]; !limit.IsZero() {
			return true
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if limit := list[i].Resources.Limits[name]; limit.IsZero() {
				return false
			}
		}
	}
	return true
}
