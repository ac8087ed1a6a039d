package hollow

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
)

// idleMemory is the memory of a running container without load, in bytes.
const idleMemory = 1 << 20

// simulatedLoad returns the simulated usage of a container. That is only the memory of its process, unless its command
// is a stress-ng command. An example is
//
//	stress-ng --cpu 2 --cpu-load 25 --vm-bytes 64M
//
// The same command produces the same load on a real node.
func simulatedLoad(c *runtime.ContainerConfig) (cores float64, memory uint64) {
	words := commandWords(c)
	if len(words) == 0 || filepath.Base(words[0]) != "stress-ng" {
		return 0, idleMemory
	}
	share, memory := 1.0, uint64(idleMemory)
	for i := 1; i+1 < len(words); i += 2 {
		switch value := words[i+1]; words[i] {
		case "-c", "--cpu":
			cores, _ = strconv.ParseFloat(value, 64) // 0 if it is not a number
		case "-l", "--cpu-load":
			percent, _ := strconv.ParseFloat(value, 64) // 0 if it is not a number
			share = percent / 100
		case "--vm-bytes":
			memory += parseBytes(value)
		}
	}
	return max(0, cores*share), memory
}

// parseBytes returns the bytes of a size in stress-ng's notation.
func parseBytes(text string) uint64 {
	unit := uint64(1)
	if n := len(text); n > 0 {
		if i := strings.IndexByte("kmg", text[n-1]|0x20); i >= 0 {
			unit, text = 1<<(10*(i+1)), text[:n-1]
		}
	}
	n, _ := strconv.ParseUint(text, 10, 32) // 0 if it is not a number
	return n * unit
}

// usage returns a container's consumed CPU time in nanoseconds and its current memory in bytes.
func (c *container) usage(now time.Time) (cpu, memory uint64) {
	if c.state != runtime.ContainerState_CONTAINER_RUNNING {
		return 0, 0
	}
	cores, memory := simulatedLoad(c.config)
	return uint64(cores * float64(now.Sub(c.started))), memory
}

// Usage returns the consumed CPU time of all containers in nanoseconds, and their current memory in bytes.
func (r *Runtime) Usage() (cpu, memory uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cpu = r.ended
	now := time.Now()
	for _, c := range r.containers {
		mine, bytes := c.usage(now)
		cpu, memory = cpu+mine, memory+bytes
	}
	return cpu, memory
}

// ListPodSandboxStats implements cri.Runtime.
func (r *Runtime) ListPodSandboxStats(context.Context) ([]*runtime.PodSandboxStats, error) {
	if err := r.countCall("ListPodSandboxStats"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().Truncate(time.Millisecond) // the precision in which it is reported
	figures := func(cpu, memory uint64) (*runtime.CpuUsage, *runtime.MemoryUsage) {
		return &runtime.CpuUsage{
				Timestamp:            now.UnixNano(),
				UsageCoreNanoSeconds: &runtime.UInt64Value{Value: cpu},
				UsageNanoCores:       &runtime.UInt64Value{},
			},
			&runtime.MemoryUsage{
				Timestamp:       now.UnixNano(),
				WorkingSetBytes: &runtime.UInt64Value{Value: memory},
			}
	}
	var list []*runtime.PodSandboxStats
	boxes := map[string]*runtime.PodSandboxStats{}
	for _, b := range r.sandboxes {
		s := &runtime.PodSandboxStats{
			Attributes: &runtime.PodSandboxAttributes{
				Id:       b.id,
				Metadata: b.config.Metadata,
				Labels:   b.config.Labels,
			}, Linux: &runtime.LinuxPodSandboxStats{},
		}
		s.Linux.Cpu, s.Linux.Memory = figures(0, 0)
		list, boxes[b.id] = append(list, s), s
	}
	for _, c := range r.containers {
		s := boxes[c.sandbox]
		if s == nil || c.state != runtime.ContainerState_CONTAINER_RUNNING {
			continue
		}
		cpu, memory := c.usage(now)
		mine := &runtime.ContainerStats{
			Attributes: &runtime.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels},
		}
		mine.Cpu, mine.Memory = figures(cpu, memory)
		s.Linux.Containers = append(s.Linux.Containers, mine)
		s.Linux.Cpu.UsageCoreNanoSeconds.Value += cpu
		s.Linux.Memory.WorkingSetBytes.Value += memory
	}
	return list, nil
}

// PodMetrics implements cri.Runtime.
func (r *Runtime) PodMetrics(context.Context) ([]*runtime.MetricDescriptor, []*runtime.PodSandboxMetrics, error) {
	return nil, nil, cri.ErrNoMetrics
}
