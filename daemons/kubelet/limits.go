package kubelet

import (
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/cgroup"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/nodeagent"
)

// podCgroupLimits returns the resource limits of a pod's cgroup.
func (k *Kubelet) podCgroupLimits(p *corev1.Pod) cgroup.Limits {
	l := cgroup.ForPod(p)
	l.Pids = max(int64(k.file.PodPidsLimit), 0)
	if k.isMemoryProtected() {
		l.MemoryMin, l.MemoryLow = cgroup.ProtectedMemory(p)
	}
	return l
}

// isMemoryProtected reports whether the memory that pods request is protected.
func (k *Kubelet) isMemoryProtected() bool {
	return k.file.MemoryReservationPolicy == config.ReserveTiered
}

// containerMemory returns the memory settings of containers. It returns nil on a node with cgroup version 1.
func (k *Kubelet) containerMemory() *cri.Memory {
	if !k.cgroups.IsUnified() {
		return nil
	}
	single := k.file.SingleProcessOOMKill
	m := &cri.Memory{KillGroup: single == nil || !*single, Reserve: k.isMemoryProtected(),
		Throttle: k.file.MemoryThrottlingFactor}
	if memory, ok := k.fieldNode().Allocatable[corev1.ResourceMemory]; ok {
		m.Allocatable = memory.Value()
	}
	return m
}

// allPodsLimits returns the resource limits of all pods together.
func (k *Kubelet) allPodsLimits() cgroup.Limits {
	a := k.agent.Allocatable()
	l := cgroup.Limits{CPUShares: min(a.Cpu().MilliValue()*1024/1000, 262144)}
	floor := nodeagent.Threshold(k.file.EvictionHard["memory.available"], 0)
	if m := a.Memory().Value(); m > 0 && len(k.file.SystemReserved)+len(k.file.KubeReserved) > 0 {
		l.MemoryLimit = m + floor // eviction starts before the limit is reached
	}
	return l
}

func (k *Kubelet) memoryCapacity() int64 {
	_, capacity, _ := k.machine.Memory()
	return capacity
}
