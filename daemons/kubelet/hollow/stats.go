package hollow

import (
	"context"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandboxStats implements cri.Runtime.
func (r *Runtime) ListPodSandboxStats(context.Context) ([]*runtime.PodSandboxStats, error) {
	if err := r.begin("ListPodSandboxStats"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtime.PodSandboxStats
	now := time.Now().UnixNano()
	cpu := &runtime.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtime.UInt64Value{}, UsageNanoCores: &runtime.UInt64Value{}}
	memory := &runtime.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtime.UInt64Value{}}
	for _, b := range r.sandboxes {
		s := &runtime.PodSandboxStats{
			Attributes: &runtime.PodSandboxAttributes{Id: b.id, Metadata: b.config.Metadata, Labels: b.config.Labels},
			Linux:      &runtime.LinuxPodSandboxStats{Cpu: cpu, Memory: memory},
		}
		for _, c := range r.containers {
			if c.sandbox == b.id && c.state == runtime.ContainerState_CONTAINER_RUNNING {
				s.Linux.Containers = append(s.Linux.Containers, &runtime.ContainerStats{
					Attributes: &runtime.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels}, Cpu: cpu, Memory: memory,
				})
			}
		}
		list = append(list, s)
	}
	return list, nil
}
