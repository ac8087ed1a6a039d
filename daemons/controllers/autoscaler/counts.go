package autoscaler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"

	"clusterctl/daemons/controllers/loop"
)

// counts holds the metrics of autoscaling, under upstream's names.
type counts struct {
	total, computed    *prometheus.CounterVec
	duration, computes *prometheus.HistogramVec
}

func newCounts(c loop.Context) counts {
	const sub = "horizontal_pod_autoscaler_controller_"
	return counts{
		total: c.Counter(sub+"reconciliations_total", "How often autoscalers were looked at, by what was done "+
			"(scale_down, scale_up, none) and what went wrong (spec, internal, none).", "action", "error"),
		duration: c.Histogram(sub+"reconciliation_duration_seconds", "How long it took to look at an autoscaler.",
			prometheus.ExponentialBuckets(0.001, 2, 15), "action", "error"),
		computed: c.Counter(sub+"metric_computation_total",
			"How often a metric of an autoscaler was measured, by what it asks for, what went wrong and its type.",
			"action", "error", "metric_type"),
		computes: c.Histogram(sub+"metric_computation_duration_seconds",
			"How long it took to measure a metric of an autoscaler.", prometheus.ExponentialBuckets(0.001, 2, 15),
			"action", "error", "metric_type"),
	}
}

// specError marks a mistake in the autoscaler's spec.
type specError struct{ error }

func (e specError) Unwrap() error { return e.error }

// errorLabel returns the metric label for an error.
func errorLabel(err error) string {
	var spec specError
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &spec):
		return "spec"
	}
	return "internal"
}

// observeMetric counts the result of one metric: requests is the number of replicas that it asks for, now the current
// number.
func (c *counts) observeMetric(kind autoscalingv2.MetricSourceType, now, requests int32, f *failure,
	took time.Duration) {
	action, err := "none", error(nil)
	switch {
	case f != nil:
		err = f.err
	case requests > now:
		action = "scale_up"
	case requests < now:
		action = "scale_down"
	}
	c.computed.WithLabelValues(action, errorLabel(err), string(kind)).Inc()
	c.computes.WithLabelValues(action, errorLabel(err), string(kind)).Observe(took.Seconds())
}

// observeSync counts the result of one sync. lastScaled is the time of the last scaling before it.
func (c *counts) observeSync(
	hpa *autoscalingv2.HorizontalPodAutoscaler,
	lastScaled *metav1.Time,
	err error,
	took time.Duration,
) {
	action := "none"
	if now := hpa.Status.LastScaleTime; now != nil && now != lastScaled {
		switch from, to := hpa.Status.CurrentReplicas, hpa.Status.DesiredReplicas; {
		case to > from:
			action = "scale_up"
		case to < from:
			action = "scale_down"
		}
	}
	c.total.WithLabelValues(action, errorLabel(err)).Inc()
	c.duration.WithLabelValues(action, errorLabel(err)).Observe(took.Seconds())
}

// autoscalerCollector collects the number of autoscalers and their desired replicas. Both are computed at each scrape,
// so that a deleted autoscaler has none.
type autoscalerCollector struct {
	autoscalers autoscalinglisters.HorizontalPodAutoscalerLister
}

var (
	countOfAutoscalers = prometheus.NewDesc("horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
		"Autoscalers that there are.", nil, nil)
	desiredReplicas = prometheus.NewDesc("horizontal_pod_autoscaler_controller_desired_replicas",
		"Replicas that an autoscaler asks for.", []string{"namespace", "hpa_name"}, nil)
)

// Describe implements prometheus.Collector.
func (autoscalerCollector) Describe(to chan<- *prometheus.Desc) {
	to <- countOfAutoscalers
	to <- desiredReplicas
}

// Collect implements prometheus.Collector.
func (c autoscalerCollector) Collect(to chan<- prometheus.Metric) {
	all, err := c.autoscalers.List(labels.Everything())
	if err != nil {
		return
	}
	to <- prometheus.MustNewConstMetric(countOfAutoscalers, prometheus.GaugeValue, float64(len(all)))
	for _, hpa := range all {
		to <- prometheus.MustNewConstMetric(desiredReplicas, prometheus.GaugeValue, float64(hpa.Status.DesiredReplicas),
			hpa.Namespace, hpa.Name)
	}
}
