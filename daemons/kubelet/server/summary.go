package server

import (
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/usage"
)

// serveSummary serves the resource usage of the node and its pods, as counted by the runtime.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	boxes, err := s.Runtime.ListPodSandboxStats(r.Context())
	if err != nil {
		http.Error(w, cri.Message(err), http.StatusInternalServerError)
		return
	}
	summary := stats.Summary{Node: stats.NodeStats{NodeName: s.Node}}
	now := metav1.Now()
	if available, capacity, err := s.Machine.Memory(); err == nil {
		used, free := uint64(capacity-available), uint64(available)
		summary.Node.Memory = &stats.MemoryStats{
			Time:            now,
			AvailableBytes:  &free,
			UsageBytes:      &used,
			WorkingSetBytes: &used,
		}
	}
	if nanos, err := s.Machine.CPU(); err == nil {
		summary.Node.CPU = &stats.CPUStats{Time: now, UsageCoreNanoSeconds: &nanos}
	}
	if d, err := s.Machine.Disk(); err == nil {
		available, capacity, used := uint64(d.Available), uint64(d.Capacity), uint64(d.Capacity-d.Available)
		summary.Node.Fs = &stats.FsStats{
			Time:           now,
			AvailableBytes: &available,
			CapacityBytes:  &capacity,
			UsedBytes:      &used,
		}
	}
	uses := s.ClaimUsage()
	for _, b := range boxes {
		m := b.GetAttributes().GetMetadata()
		p := stats.PodStats{PodRef: stats.PodReference{Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUid()}}
		l := b.GetLinux()
		p.CPU, p.Memory = cpuStats(l.GetCpu()), memoryStats(l.GetMemory())
		if n := l.GetNetwork().GetDefaultInterface(); n != nil {
			p.Network = &stats.NetworkStats{
				Time: timeOf(l.GetNetwork().GetTimestamp()),
				InterfaceStats: stats.InterfaceStats{
					Name: n.Name, RxBytes: uint64Of(n.RxBytes), TxBytes: uint64Of(n.TxBytes),
					RxErrors: uint64Of(n.RxErrors),
					TxErrors: uint64Of(n.TxErrors)},
			}
		}
		for _, c := range l.GetContainers() {
			p.Containers = append(p.Containers, stats.ContainerStats{
				Name: c.GetAttributes().
					GetMetadata().
					GetName(),
				CPU: cpuStats(c.GetCpu()), Memory: memoryStats(c.GetMemory()),
			})
		}
		p.VolumeStats = usage.VolumeStats(p.PodRef, uses[types.UID(p.PodRef.UID)])
		summary.Pods = append(summary.Pods, p)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(summary)
}

func timeOf(nanos int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanos)) }

func uint64Of(v *criapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	n := v.Value
	return &n
}

func cpuStats(c *criapi.CpuUsage) *stats.CPUStats {
	if c == nil {
		return nil
	}
	return &stats.CPUStats{
		Time:                 timeOf(c.Timestamp),
		UsageNanoCores:       uint64Of(c.UsageNanoCores),
		UsageCoreNanoSeconds: uint64Of(c.UsageCoreNanoSeconds),
	}
}

func memoryStats(m *criapi.MemoryUsage) *stats.MemoryStats {
	if m == nil {
		return nil
	}
	return &stats.MemoryStats{
		Time: timeOf(
			m.Timestamp,
		), WorkingSetBytes: uint64Of(m.WorkingSetBytes), AvailableBytes: uint64Of(m.AvailableBytes),
		UsageBytes: uint64Of(m.UsageBytes), RSSBytes: uint64Of(m.RssBytes), PageFaults: uint64Of(m.PageFaults),
		MajorPageFaults: uint64Of(m.MajorPageFaults),
	}
}
