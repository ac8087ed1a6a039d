package plugin

import (
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// Resources are amounts of what nodes have and pods ask for.
type Resources struct {
	MilliCPU, Memory, Ephemeral int64 // thousandths of a core, bytes, bytes
	Pods                        int64 // how many a node takes
	Other                       map[corev1.ResourceName]int64
}

var usualRequests = corev1.ResourceList{
	corev1.ResourceCPU:    *quantity.NewMilliQuantity(usualMilliCPU, quantity.DecimalSI),
	corev1.ResourceMemory: *quantity.NewQuantity(usualMemory, quantity.BinarySI),
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

// plus returns the sum; times is 1 or -1. Neither operand is changed.
func (r Resources) plus(o Resources, times int64) Resources {
	r.MilliCPU += times * o.MilliCPU
	r.Memory += times * o.Memory
	r.Ephemeral += times * o.Ephemeral
	if len(o.Other) > 0 {
		sum := make(map[corev1.ResourceName]int64, len(r.Other)+len(o.Other))
		for name, n := range r.Other {
			sum[name] = n
		}
		for name, n := range o.Other {
			sum[name] += times * n
		}
		r.Other = sum
	}
	return r
}

// resources refuses nodes that have not enough left of what the pod asks for.
func resources(pod *Pod, _ *Snapshot) Check {
	asks := pod.Requests
	return func(n *Node) []string {
		var reasons []string
		if int64(len(n.Pods))+1 > n.Allocatable.Pods {
			reasons = append(reasons, "Too many pods")
		}
		if asks.MilliCPU > 0 && asks.MilliCPU > n.Allocatable.MilliCPU-n.Requested.MilliCPU {
			reasons = append(reasons, "Insufficient cpu")
		}
		if asks.Memory > 0 && asks.Memory > n.Allocatable.Memory-n.Requested.Memory {
			reasons = append(reasons, "Insufficient memory")
		}
		if asks.Ephemeral > 0 && asks.Ephemeral > n.Allocatable.Ephemeral-n.Requested.Ephemeral {
			reasons = append(reasons, "Insufficient ephemeral-storage")
		}
		for name, amount := range asks.Other {
			if amount > 0 && amount > n.Allocatable.Other[name]-n.Requested.Other[name] {
				reasons = append(reasons, "Insufficient "+string(name))
			}
		}
		return reasons
	}
}

// leastAllocated prefers nodes with much left of cpu and memory.
func leastAllocated(pod *Pod, _ *Snapshot) Rate {
	return func(n *Node) int64 {
		used := n.Usual.plus(pod.Usual, 1)
		return (left(used.MilliCPU, n.Allocatable.MilliCPU) + left(used.Memory, n.Allocatable.Memory)) / 2
	}
}

func left(used, has int64) int64 {
	if has <= 0 || used > has {
		return 0
	}
	return (has - used) * MaxScore / has
}

// balanced prefers nodes on which cpu and memory would be used up alike.
func balanced(pod *Pod, _ *Snapshot) Rate {
	return func(n *Node) int64 {
		used := n.Requested.plus(pod.Requests, 1)
		cpu, memory := share(used.MilliCPU, n.Allocatable.MilliCPU), share(used.Memory, n.Allocatable.Memory)
		apart := cpu - memory
		if apart < 0 {
			apart = -apart
		}
		return int64((1 - apart/2) * MaxScore)
	}
}

func share(used, has int64) float64 {
	if has <= 0 {
		return 1
	}
	return min(float64(used)/float64(has), 1)
}
