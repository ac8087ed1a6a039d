package pod

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// QOS returns a pod's quality of service class: Guaranteed when every container
// limits CPU and memory and requests no less, BestEffort when none asks for
// anything, Burstable otherwise. What the pod as a whole asks for stands for its containers.
func QOS(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	var asked []*corev1.ResourceRequirements
	if r := p.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		asked = append(asked, r)
	} else {
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				asked = append(asked, &list[i].Resources)
			}
		}
	}
	any, guaranteed := false, true
	for _, r := range asked {
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

// MinShares are the fewest cgroup v1 shares that there are.
const MinShares = 2

// CPUShares converts a CPU request to cgroup v1 shares.
func CPUShares(cpu apiresource.Quantity) int64 {
	if cpu.IsZero() {
		return MinShares
	}
	return min(max(cpu.MilliValue()*1024/1000, MinShares), 262144)
}

// CPUPeriod is the period of CPUQuota, in microseconds.
const CPUPeriod = 100000

// CPUQuota converts a CPU limit to a quota of CPUPeriod; 0 is no limit.
func CPUQuota(cpu apiresource.Quantity) int64 {
	if cpu.IsZero() {
		return 0
	}
	return max(cpu.MilliValue()*CPUPeriod/1000, 1000)
}

// OOMScoreAdj returns how willingly the kernel kills a container when memory runs
// out: guaranteed pods last, the rest by the share of memory they did not ask for.
func OOMScoreAdj(p *corev1.Pod, c *corev1.Container, capacity int64) int64 {
	if p.Spec.PriorityClassName == "system-node-critical" || Static(p) {
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
	least := int64(math.MaxInt64) // that a container proper requests
	for i := range p.Spec.Containers {
		least = min(least, p.Spec.Containers[i].Resources.Requests.Memory().Value())
	}
	request := c.Resources.Requests.Memory().Value()
	if Sidecar(c) && isInit(p, c) && least < math.MaxInt64 {
		request = max(request, least) // it is not killed before those that it serves
	}
	if resource.IsPodLevelRequestsSet(p) {
		request += unclaimed(p)
	}
	return min(max(1000-1000*request/capacity, 3), 999)
}

// unclaimed returns each container's part of the memory that the pod as a whole requests beyond what its containers do.
func unclaimed(p *corev1.Pod) int64 {
	whole, parts := p.Spec.Resources.Requests[corev1.ResourceMemory], resource.AggregateContainerRequests(
		p,
		resource.PodResourcesOptions{},
	)
	count := int64(len(p.Spec.Containers))
	for i := range p.Spec.InitContainers {
		if Sidecar(&p.Spec.InitContainers[i]) {
			count++
		}
	}
	return max(whole.Value()-parts.Memory().Value(), 0) / max(count, 1)
}

// systemCritical is the least priority of pods without which a node or the cluster does not work.
const systemCritical = 2000000000

// Critical reports whether a pod is one without which a node or the cluster does not work: it comes also when the
// machine is short of something, and is not evicted for that.
func Critical(p *corev1.Pod) bool {
	return Static(p) || IsMirror(p) || p.Spec.Priority != nil && *p.Spec.Priority >= systemCritical
}
