package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOS returns a pod's quality of service class: Guaranteed when every container
// limits CPU and memory and requests no less, BestEffort when none asks for
// anything, Burstable otherwise.
func QOS(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	any, guaranteed := false, true
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			r := &list[i].Resources
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
func CPUShares(cpu resource.Quantity) int64 {
	if cpu.IsZero() {
		return MinShares
	}
	return min(max(cpu.MilliValue()*1024/1000, MinShares), 262144)
}

// CPUPeriod is the period of CPUQuota, in microseconds.
const CPUPeriod = 100000

// CPUQuota converts a CPU limit to a quota of CPUPeriod; 0 is no limit.
func CPUQuota(cpu resource.Quantity) int64 {
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
	request := c.Resources.Requests.Memory().Value()
	if capacity <= 0 {
		return 999
	}
	return min(max(1000-1000*request/capacity, 3), 999)
}
