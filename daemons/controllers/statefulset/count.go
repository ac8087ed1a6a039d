package statefulset

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	appslisters "k8s.io/client-go/listers/apps/v1"
)

// unavailable collects the metrics of updates: how many pods of a set may be unavailable, and how many are. They are
// computed at each scrape, so that a deleted set has none.
type unavailable struct{ sets appslisters.StatefulSetLister }

var (
	labelsOfSets = []string{"statefulset_namespace", "statefulset_name", "pod_management_policy"}
	mayBeDown    = prometheus.NewDesc(
		"statefulset_controller_statefulset_max_unavailable",
		"Pods of a StatefulSet that may be unavailable while it is updated.",
		labelsOfSets,
		nil,
	)
	areDown = prometheus.NewDesc(
		"statefulset_controller_statefulset_unavailable_replicas",
		"Pods of a StatefulSet that are missing or not available.",
		labelsOfSets,
		nil,
	)
)

// Describe implements prometheus.Collector.
func (unavailable) Describe(to chan<- *prometheus.Desc) {
	to <- mayBeDown
	to <- areDown
}

// Collect implements prometheus.Collector.
func (u unavailable) Collect(to chan<- prometheus.Metric) {
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
		to <- prometheus.MustNewConstMetric(mayBeDown, prometheus.GaugeValue, float64(maxUnavailable(set)), of...)
		to <- prometheus.MustNewConstMetric(areDown, prometheus.GaugeValue,
			float64(max(0, replicas(set)-int(set.Status.AvailableReplicas))), of...)
	}
}
