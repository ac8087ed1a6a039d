package cri

import (
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
)

// Memory holds the memory settings of containers on a node with cgroup version 2.
type Memory struct {
	KillGroup bool // kill all processes of a container when it is out of memory
	Reserve   bool // protect memory requests, according to the pod's QoS class
	// Throttle is the fraction of the memory between request and limit above which a container is throttled. 0 disables
	// throttling.
	Throttle    float64
	Allocatable int64 // bytes; serves as the limit of containers without one
}

// CgroupFiles returns the contents of cgroup files that the runtime writes for a container, by file name. It returns
// nil for a node with cgroup version 1. See
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#memory-qos-with-cgroup-v2.
func (m *Memory) CgroupFiles(p *corev1.Pod, spec *corev1.Container) map[string]string {
	if m == nil {
		return nil
	}
	files := map[string]string{}
	set := func(name string, bytes int64) { files[name] = strconv.FormatInt(bytes, 10) }
	if m.KillGroup {
		set("memory.oom.group", 1)
	}
	class := pod.QOS(p)
	request, limit := spec.Resources.Requests.Memory().Value(), spec.Resources.Limits.Memory().Value()
	if m.Reserve && request > 0 {
		switch class {
		case corev1.PodQOSGuaranteed:
			set("memory.min", request)
		case corev1.PodQOSBurstable:
			set("memory.low", request)
		}
	}
	if m.Throttle > 0 && class != corev1.PodQOSGuaranteed && (limit == 0 || request != limit) {
		maximum := limit
		if maximum == 0 {
			maximum = m.Allocatable
		}
		page := int64(os.Getpagesize())
		if high := (request + int64(m.Throttle*float64(maximum-request))) / page * page; high > request {
			set("memory.high", high)
		}
	}
	return files
}

// ResizedFiles returns the cgroup files and their new values after a running container was resized. It removes the
// throttling of a container that must no longer be throttled.
func (m *Memory) ResizedFiles(p *corev1.Pod, spec *corev1.Container) map[string]string {
	files := m.CgroupFiles(p, spec)
	if _, slowed := files["memory.high"]; m != nil && m.Throttle > 0 && !slowed {
		files["memory.high"] = "max"
	}
	return files
}
