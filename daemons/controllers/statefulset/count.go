package statefulset

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	appslisters "k8s.io/client-go/listers/apps/v1"
)

// updateCollector collects the metrics of updates: how many pods of a set may be unavailable, and how many are. They
// are computed at each scrape, so that a deleted set has none.
type updateCollector struct{ sets appslisters.StatefulSetLister }

var (
	setLabels          = []string{"statefulset_namespace", "statefulset_name", "pod_management_policy"}
	maxUnavailableDesc = prometheus.NewDesc("statefulset_controller_statefulset_max_unavailable",
		"Pods of a StatefulSet that may be unavailable while it is updated.", setLabels, nil)
	unavailableDesc = prometheus.NewDesc("statefulset_controller_statefulset_unavailable_replicas",
		"Pods of a StatefulSet that are missing or not available.", setLabels, nil)
)

// Describe implements prometheus.Collector.
func (updateCollector) Describe(to chan<- *prometheus.Desc) {
	to <- maxUnavailableDesc
	to <- unavailableDesc
}

// Collect implements prometheus.Collector.
func (u updateCollector) Collect(to chan<- prometheus.Metric) {
	sets, err := u.sets.List(labels.Everything())
	if err != nil {
		return
	}
	for _, set := range sets {
		if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			continue
		}
		of := []string{
			set.Namespace,
			set.Name,
			string(cmp.Or(set.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)),
		}
		to <- prometheus.MustNewConstMetric(maxUnavailableDesc, prometheus.GaugeValue, float64(maxUnavailable(set)),
			of...)
		to <- prometheus.MustNewConstMetric(unavailableDesc, prometheus.GaugeValue,
			float64(max(0, replicasOrDefault(set)-int(set.Status.AvailableReplicas))), of...)
	}
}
