package autoscaler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

func TestMetricEvaluationsAreCounted(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	c := newCounts(loop.Context{Metrics: registry})
	unknown := (target{}).unknownMetric(t)
	c.observeMetric(autoscalingv2.ResourceMetricSourceType, 2, 3, nil, time.Second)
	c.observeMetric(autoscalingv2.ResourceMetricSourceType, 2, 1, nil, time.Second)
	c.observeMetric(autoscalingv2.ExternalMetricSourceType, 2, 2, nil, time.Second)
	c.observeMetric(autoscalingv2.ExternalMetricSourceType, 2, 0,
		&failure{"FailedGetExternalMetric", errors.New("nobody serves it")}, time.Second)
	c.observeMetric("Moon", 2, 0, unknown, time.Second)
	c.observeSync(&autoscalingv2.HorizontalPodAutoscaler{}, nil, fmt.Errorf("first error is: %w", unknown.err),
		time.Second)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP horizontal_pod_autoscaler_controller_metric_computation_total How often a metric of an autoscaler was measured, by what it asks for, what went wrong and its type.
# TYPE horizontal_pod_autoscaler_controller_metric_computation_total counter
horizontal_pod_autoscaler_controller_metric_computation_total{action="none",error="internal",metric_type="External"} 1
horizontal_pod_autoscaler_controller_metric_computation_total{action="none",error="none",metric_type="External"} 1
horizontal_pod_autoscaler_controller_metric_computation_total{action="none",error="spec",metric_type="Moon"} 1
horizontal_pod_autoscaler_controller_metric_computation_total{action="scale_down",error="none",metric_type="Resource"} 1
horizontal_pod_autoscaler_controller_metric_computation_total{action="scale_up",error="none",metric_type="Resource"} 1
# HELP horizontal_pod_autoscaler_controller_reconciliations_total How often autoscalers were looked at, by what was done (scale_down, scale_up, none) and what went wrong (spec, internal, none).
# TYPE horizontal_pod_autoscaler_controller_reconciliations_total counter
horizontal_pod_autoscaler_controller_reconciliations_total{action="none",error="spec"} 1
`), "horizontal_pod_autoscaler_controller_metric_computation_total", "horizontal_pod_autoscaler_controller_reconciliations_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(c.computes); n != 5 {
		t.Errorf("%d series of how long it took", n)
	}
}

// unknownMetric returns the failure of a metric of unknown type.
func (t target) unknownMetric(test *testing.T) *failure {
	test.Helper()
	_, f := t.measure(test.Context(), nil, autoscalingv2.MetricSpec{Type: "Moon"})
	if f == nil {
		test.Fatal("a metric of no known type gives an answer")
	}
	return f
}

// Each metric is reported once, with its result.
func TestEachMetricIsReportedOnce(t *testing.T) {
	var recorded []string
	goal := target{specReplicas: 1, observe: func(kind autoscalingv2.MetricSourceType) func(int32, *failure) {
		return func(_ int32, f *failure) { recorded = append(recorded, fmt.Sprint(kind, " ", f != nil)) }
	}}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3,
			Metrics:     []autoscalingv2.MetricSpec{{Type: "Moon"}, {Type: "Sun"}},
		},
	}
	Decide(t.Context(), hpa, goal, nil, &History{}, &conditions{})
	if fmt.Sprint(recorded) != "[Moon true Sun true]" {
		t.Errorf("the metrics are %v", recorded)
	}
}

func TestExistingAutoscalersAreCounted(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := indexer.Add(&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "n",
		Name: "web"}, Status: autoscalingv2.HorizontalPodAutoscalerStatus{DesiredReplicas: 4}}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(autoscalerCollector{autoscalinglisters.NewHorizontalPodAutoscalerLister(indexer)})
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP horizontal_pod_autoscaler_controller_desired_replicas Replicas that an autoscaler asks for.
# TYPE horizontal_pod_autoscaler_controller_desired_replicas gauge
horizontal_pod_autoscaler_controller_desired_replicas{hpa_name="web",namespace="n"} 4
# HELP horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers Autoscalers that there are.
# TYPE horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers gauge
horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 1
`)); err != nil {
		t.Error(err)
	}
}
