package cgroup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"clusterctl/daemons/kubelet/pod"
)

// Limits are the limits of a cgroup. Zero means no limit.
type Limits struct {
	CPUShares   int64
	CPUQuota    int64 // microseconds per pod.CPUPeriod
	MemoryLimit int64 // bytes
	Pids        int64
	// These are the bytes that are never reclaimed and the bytes that are reclaimed last. They need version 2.
	MemoryMin, MemoryLow int64
}

// Max returns limits that are wide enough for both l and other.
func (l Limits) Max(other Limits) Limits {
	wider := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return 0
		}
		return max(a, b)
	}
	return Limits{
		CPUShares: max(l.CPUShares, other.CPUShares), CPUQuota: wider(l.CPUQuota, other.CPUQuota),
		MemoryLimit: wider(l.MemoryLimit, other.MemoryLimit), Pids: wider(l.Pids, other.Pids),
		MemoryMin: max(l.MemoryMin, other.MemoryMin), MemoryLow: max(l.MemoryLow, other.MemoryLow),
	}
}

// BurstableShares returns the CPU shares of the sum of the CPU requests of the burstable pods among the given pods.
func BurstableShares(pods []*corev1.Pod) int64 {
	sum := int64(0)
	for _, p := range pods {
		if pod.QOS(p) == corev1.PodQOSBurstable {
			cpu := podRequests(p)[corev1.ResourceCPU]
			sum += cpu.MilliValue()
		}
	}
	return pod.CPUShares(*apiresource.NewMilliQuantity(sum, apiresource.DecimalSI))
}

// podRequests returns a pod's resource requests. A static pod has the limit as its request if it has no request. For
// other pods, the API server sets this default.
func podRequests(p *corev1.Pod) corev1.ResourceList {
	if !pod.IsStatic(p) {
		return resource.PodRequests(p, resource.PodResourcesOptions{})
	}
	p = p.DeepCopy()
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			for name, limit := range r.Limits {
				if _, ok := r.Requests[name]; !ok {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = limit
				}
			}
		}
	}
	return resource.PodRequests(p, resource.PodResourcesOptions{})
}

// ProtectedMemory returns the protected memory of a pod in bytes: minimum is never reclaimed and is the request of a
// guaranteed pod; low is reclaimed last and is the request of a burstable pod.
func ProtectedMemory(p *corev1.Pod) (minimum, low int64) {
	memory := podRequests(p)[corev1.ResourceMemory]
	switch pod.QOS(p) {
	case corev1.PodQOSGuaranteed:
		return memory.Value(), 0
	case corev1.PodQOSBurstable:
		return 0, memory.Value()
	}
	return 0, 0
}

// ForPod returns the limits of a pod as a whole.
func ForPod(p *corev1.Pod) Limits {
	l := Limits{CPUShares: pod.CPUShares(podRequests(p)[corev1.ResourceCPU])}
	limits := resource.PodLimits(p, resource.PodResourcesOptions{})
	cpu, memory := true, true
	for _, c := range append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...) {
		cpu = cpu && !c.Resources.Limits.Cpu().IsZero()
		memory = memory && !c.Resources.Limits.Memory().IsZero()
	}
	if r := p.Spec.Resources; r != nil { // pod-level limits apply to all containers together
		cpu = cpu || !r.Limits.Cpu().IsZero()
		memory = memory || !r.Limits.Memory().IsZero()
	}
	if cpu {
		l.CPUQuota = pod.CPUQuota(limits[corev1.ResourceCPU])
	}
	if memory {
		l.MemoryLimit = limits.Memory().Value()
	}
	return l
}
