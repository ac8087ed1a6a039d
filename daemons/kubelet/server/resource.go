package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
)

// serveResourceMetrics serves the metrics that the metrics server reads, under upstream's names.
func (s *Server) serveResourceMetrics(w http.ResponseWriter, r *http.Request) {
	used, err := readPodStats(r.Context(), s.Runtime)
	if err != nil {
		http.Error(w, cri.Message(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = used.write(w, s.Machine) // an error means that the client has gone
}

// WriteResource writes what /metrics/resource serves.
func WriteResource(ctx context.Context, runtime cri.Service, m Machine, w io.Writer) error {
	used, err := readPodStats(ctx, runtime)
	if err != nil {
		return err
	}
	return used.write(w, m)
}

// podStats is the resource usage of the node's pods, as counted by the runtime.
type podStats struct {
	sandboxes []*criapi.PodSandboxStats
	created   map[string]int64 // creation times of running containers by ID, in nanoseconds since 1970
}

func readPodStats(ctx context.Context, runtime cri.Service) (podStats, error) {
	u := podStats{created: map[string]int64{}}
	var err error
	if u.sandboxes, err = runtime.ListPodSandboxStats(ctx); err != nil {
		return u, err
	}
	containers, err := runtime.ListContainers(ctx, &criapi.ContainerFilter{})
	for _, c := range containers {
		if c.State == criapi.ContainerState_CONTAINER_RUNNING {
			u.created[c.Id] = c.CreatedAt
		}
	}
	return u, err
}

// statFunc returns one value of a container or a pod, and its time in nanoseconds since 1970, or 0 if the time is
// unknown.
type statFunc func(*criapi.CpuUsage, *criapi.MemoryUsage) (v float64, at int64, ok bool)

func cpuStat(c *criapi.CpuUsage, _ *criapi.MemoryUsage) (float64, int64, bool) {
	return float64(c.GetUsageCoreNanoSeconds().GetValue()) / 1e9, c.GetTimestamp(), c.GetUsageCoreNanoSeconds() != nil
}

func memoryStat(_ *criapi.CpuUsage, m *criapi.MemoryUsage) (float64, int64, bool) {
	return float64(m.GetWorkingSetBytes().GetValue()), m.GetTimestamp(), m.GetWorkingSetBytes() != nil
}

// write writes the metrics in the text format of Prometheus. Containers that do not run have no line.
func (u podStats) write(to io.Writer, machine Machine) error {
	w := bufio.NewWriter(to)
	now := time.Now().UnixMilli()
	head := func(name, kind string) { fmt.Fprintf(w, "# TYPE %s %s\n", name, kind) }
	if nanos, err := machine.CPU(); err == nil {
		head("node_cpu_usage_seconds_total", "counter")
		fmt.Fprintf(w, "node_cpu_usage_seconds_total %g %d\n", float64(nanos)/1e9, now)
	}
	if available, capacity, err := machine.Memory(); err == nil {
		head("node_memory_working_set_bytes", "gauge")
		fmt.Fprintf(w, "node_memory_working_set_bytes %d %d\n", capacity-available, now)
	}
	for _, series := range []struct {
		name, kind string
		of         statFunc
	}{{"cpu_usage_seconds_total", "counter", cpuStat}, {"memory_working_set_bytes", "gauge", memoryStat}} {
		head("container_"+series.name, series.kind)
		u.eachContainer(func(pod *criapi.PodSandboxMetadata, c *criapi.ContainerStats, _ int64) {
			if v, at, ok := series.of(c.GetCpu(), c.GetMemory()); ok {
				fmt.Fprintf(w, "container_%s{container=%q,namespace=%q,pod=%q} %g %d\n", series.name,
					c.GetAttributes().GetMetadata().GetName(), pod.GetNamespace(), pod.GetName(), v, at/1e6)
			}
		})
		head("pod_"+series.name, series.kind)
		for _, b := range u.sandboxes {
			m := b.GetAttributes().GetMetadata()
			if v, at, ok := series.of(b.GetLinux().GetCpu(), b.GetLinux().GetMemory()); ok {
				fmt.Fprintf(w, "pod_%s{namespace=%q,pod=%q} %g %d\n", series.name, m.GetNamespace(), m.GetName(), v,
					at/1e6)
			}
		}
	}
	head("container_start_time_seconds", "gauge")
	u.eachContainer(func(pod *criapi.PodSandboxMetadata, c *criapi.ContainerStats, created int64) {
		fmt.Fprintf(w, "container_start_time_seconds{container=%q,namespace=%q,pod=%q} %.3f\n",
			c.GetAttributes().GetMetadata().GetName(), pod.GetNamespace(), pod.GetName(), float64(created)/1e9)
	})
	head("resource_scrape_error", "gauge")
	fmt.Fprintln(w, "resource_scrape_error 0")
	head("scrape_error", "gauge")
	fmt.Fprintln(w, "scrape_error 0")
	return w.Flush()
}

// eachContainer calls f for every running container, with its creation time.
func (u podStats) eachContainer(f func(pod *criapi.PodSandboxMetadata, c *criapi.ContainerStats, created int64)) {
	for _, b := range u.sandboxes {
		for _, c := range b.GetLinux().GetContainers() {
			if created, runs := u.created[c.GetAttributes().GetId()]; runs {
				f(b.GetAttributes().GetMetadata(), c, created)
			}
		}
	}
}
