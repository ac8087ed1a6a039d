package pod

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// QOS returns a pod's quality of service class. It is Guaranteed if every container has CPU and memory limits, and
// requests equal to them. It is BestEffort if no container has requests or limits, and Burstable otherwise. Pod-level
// resources take the place of the containers' resources.
func QOS(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	var requests []*corev1.ResourceRequirements
	if r := p.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		requests = append(requests, r)
	} else {
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				requests = append(requests, &list[i].Resources)
			}
		}
	}
	any, guaranteed := false, true
	for _, r := range requests {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				any = true
			}
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// MinShares is the kernel's minimum of cgroup v1 CPU shares.
const MinShares = 2

// CPUShares converts a CPU request to cgroup v1 shares.
func CPUShares(cpu apiresource.Quantity) int64 {
	if cpu.IsZero() {
		return MinShares
	}
	return min(max(cpu.MilliValue()*1024/1000, MinShares), 262144)
}

// CPUPeriod is the period of a CPU quota, in microseconds.
const CPUPeriod = 100000

// CPUQuota converts a CPU limit to microseconds per CPUPeriod. 0 means no limit.
func CPUQuota(cpu apiresource.Quantity) int64 {
	if cpu.IsZero() {
		return 0
	}
	return max(cpu.MilliValue()*CPUPeriod/1000, 1000)
}

// OOMScoreAdj returns the oom_score_adj of a container: lowest for guaranteed pods, otherwise higher the less memory
// the container requests.
func OOMScoreAdj(p *corev1.Pod, c *corev1.Container, capacity int64) int64 {
	if p.Spec.PriorityClassName == "system-node-critical" || IsStatic(p) {
		return -997
	}
	switch QOS(p) {
	case corev1.PodQOSGuaranteed:
		return -997
	case corev1.PodQOSBestEffort:
		return 1000
	}
	if capacity <= 0 {
		return 999
	}
	minimum := int64(math.MaxInt64) // smallest memory request of a regular container
	for i := range p.Spec.Containers {
		minimum = min(minimum, p.Spec.Containers[i].Resources.Requests.Memory().Value())
	}
	request := c.Resources.Requests.Memory().Value()
	if IsSidecar(c) && isInitContainer(p, c) && minimum < math.MaxInt64 {
		request = max(request, minimum) // a sidecar must not be killed before the containers that it serves
	}
	if resource.IsPodLevelRequestsSet(p) {
		request += podLevelShare(p)
	}
	return min(max(1000-1000*request/capacity, 3), 999)
}

// podLevelShare returns each container's share of the memory that the pod-level request exceeds the containers'
// requests by.
func podLevelShare(p *corev1.Pod) int64 {
	whole, parts := p.Spec.Resources.Requests[corev1.ResourceMemory], resource.AggregateContainerRequests(p,
		resource.PodResourcesOptions{})
	count := int64(len(p.Spec.Containers))
	for i := range p.Spec.InitContainers {
		if IsSidecar(&p.Spec.InitContainers[i]) {
			count++
		}
	}
	return max(whole.Value()-parts.Memory().Value(), 0) / max(count, 1)
}

// systemCritical is the lowest priority of pods that a node or the cluster needs to work.
const systemCritical = 2000000000

// IsCritical reports whether a node or the cluster needs a pod to work. Such a pod is accepted even if the machine is
// short of resources, and it is not evicted for that.
func IsCritical(p *corev1.Pod) bool {
	return IsStatic(p) || IsMirror(p) || p.Spec.Priority != nil && *p.Spec.Priority >= systemCritical
}
