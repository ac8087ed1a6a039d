package kubelet

import (
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/cgroup"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/nodeagent"
)

// nodeLimits computes the limits of the cgroups of pods and containers.
type nodeLimits struct {
	file    *config.KubeletFile
	cgroups Cgroups
	machine machine.Machine
	agent   *nodeagent.Agent
}

// limits returns the limits of this node.
func (k *Kubelet) limits() nodeLimits { return nodeLimits{&k.file, k.cgroups, k.machine, k.agent} }

// lastAllocatable returns what the node's status reports as allocatable, or nil before the node is registered.
func (l nodeLimits) lastAllocatable() corev1.ResourceList {
	if node := l.agent.Node(); node != nil {
		return node.Status.Allocatable
	}
	return nil
}

// podCgroupLimits returns the resource limits of a pod's cgroup.
func (l nodeLimits) podCgroupLimits(p *corev1.Pod) cgroup.Limits {
	limits := cgroup.ForPod(p)
	limits.Pids = max(int64(l.file.PodPidsLimit), 0)
	if l.isMemoryProtected() {
		limits.MemoryMin, limits.MemoryLow = cgroup.ProtectedMemory(p)
	}
	return limits
}

// isMemoryProtected reports whether the memory that pods request is protected.
func (l nodeLimits) isMemoryProtected() bool {
	return l.file.MemoryReservationPolicy == config.ReserveTiered
}

// containerMemory returns the memory settings of containers. It returns nil on a node with cgroup version 1.
func (l nodeLimits) containerMemory() *cri.Memory {
	if !l.cgroups.IsUnified() {
		return nil
	}
	single := l.file.SingleProcessOOMKill
	m := &cri.Memory{KillGroup: single == nil || !*single, Reserve: l.isMemoryProtected(),
		Throttle: l.file.MemoryThrottlingFactor}
	if memory, ok := l.lastAllocatable()[corev1.ResourceMemory]; ok {
		m.Allocatable = memory.Value()
	}
	return m
}

// allPodsLimits returns the resource limits of all pods together.
func (l nodeLimits) allPodsLimits() cgroup.Limits {
	a := l.agent.Allocatable()
	limits := cgroup.Limits{CPUShares: min(a.Cpu().MilliValue()*1024/1000, 262144)}
	floor := nodeagent.Threshold(l.file.EvictionHard["memory.available"], 0)
	if m := a.Memory().Value(); m > 0 && len(l.file.SystemReserved)+len(l.file.KubeReserved) > 0 {
		limits.MemoryLimit = m + floor // eviction starts before the limit is reached
	}
	return limits
}

// memoryCapacity returns the memory of the machine in bytes, or 0 if it is unknown.
func (l nodeLimits) memoryCapacity() int64 {
	_, capacity, _ := l.machine.Memory()
	return capacity
}
