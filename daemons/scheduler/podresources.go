package scheduler

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
)

// podResources are the metrics of the requests and limits of pods, with upstream's names, served at /metrics/resources.
// The number of series grows with the number of pods. Ended pods and pods with scheduling gates are not included. A
// scheduler that is not the leader has no series.
type podResources struct{ m *metrics }

var (
	podResourceLabels = []string{"namespace", "pod", "node", "scheduler", "priority", "resource", "unit"}
	podRequestDesc    = prometheus.NewDesc("kube_pod_resource_request", "What a pod requests of a resource.",
		podResourceLabels, nil)
	podLimitDesc = prometheus.NewDesc("kube_pod_resource_limit", "What a pod may use of a resource at most.",
		podResourceLabels, nil)
)

// podResourceMetrics returns the handler that serves podResources.
func podResourceMetrics(m *metrics) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(podResources{m}); err != nil {
		return nil, err
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// Describe implements prometheus.Collector.
func (podResources) Describe(to chan<- *prometheus.Desc) {
	to <- podRequestDesc
	to <- podLimitDesc
}

// Collect implements prometheus.Collector.
func (p podResources) Collect(to chan<- prometheus.Metric) {
	s := p.m.scheduler.Load()
	if s == nil {
		return
	}
	s.mu.Lock()
	pods := slices.Collect(s.cluster.Pods())
	pods = append(pods, s.queue.waitingPods()...)
	nodes := make([]string, len(pods))
	for i, pod := range pods {
		nodes[i] = pod.NodeName
	}
	s.mu.Unlock()
	seen := make(map[types.UID]bool, len(pods))
	for i, pod := range pods {
		if seen[pod.UID] { // bound, and not removed from the queue yet
			continue
		}
		seen[pod.UID] = true
		for _, one := range []struct {
			desc    *prometheus.Desc
			amounts *cluster.Resources
		}{{podRequestDesc, &pod.Requests}, {podLimitDesc, &pod.Limits}} {
			for name, n := range one.amounts.NonZero() {
				value, unit := float64(n), unitOf(name)
				if name == corev1.ResourceCPU {
					value /= 1000
				}
				to <- prometheus.MustNewConstMetric(one.desc, prometheus.GaugeValue, value,
					pod.Namespace, pod.Name, nodes[i], pod.Scheduler, strconv.Itoa(int(pod.Priority)), string(name),
					unit)
			}
		}
	}
}

func unitOf(name corev1.ResourceName) string {
	switch {
	case name == corev1.ResourceCPU:
		return "cores"
	case name == corev1.ResourceMemory, name == corev1.ResourceStorage, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return "bytes"
	}
	return "integer"
}
