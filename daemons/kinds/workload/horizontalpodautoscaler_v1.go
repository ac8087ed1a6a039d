package workload

import (
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Annotations for what version 1 has no fields for: it knows only a CPU target. A client of the old version then does
// not lose what a client of the new version wrote. The values have version 1's own types, as upstream writes them.
// Clients of version 2 cannot set these annotations.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
)

// dropV2Annotations removes these annotations.
func dropV2Annotations(m *metav1.ObjectMeta) {
	for _, key := range []string{metricsAnnotation, behaviorAnnotation, currentMetricsAnnotation,
		conditionsAnnotation} {
		delete(m.Annotations, key)
	}
}

func autoscalerV1(o runtime.Object) (runtime.Object, error) {
	a := o.(*autoscalingv2.HorizontalPodAutoscaler)
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: *a.ObjectMeta.DeepCopy()}
	dropV2Annotations(&out.ObjectMeta)
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(a.Spec.ScaleTargetRef),
		MinReplicas:    a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
	}
	var rest []autoscalingv1.MetricSpec
	for _, m := range a.Spec.Metrics {
		switch {
		case !isCPUUtilization(m):
			rest = append(rest, metricV1(m))
		case out.Spec.TargetCPUUtilizationPercentage == nil:
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		}
	}
	s := a.Status
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: s.ObservedGeneration, LastScaleTime: s.LastScaleTime, CurrentReplicas: s.CurrentReplicas,
		DesiredReplicas: s.DesiredReplicas,
	}
	var current []autoscalingv1.MetricStatus
	for _, m := range s.CurrentMetrics {
		current = append(current, metricStatusV1(m))
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
			m.Resource.Name == corev1.ResourceCPU &&
			m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range s.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(
				c.Type,
			), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	for _, t := range []struct {
		key   string
		isSet bool
		what  any
	}{
		{metricsAnnotation, len(rest) > 0, rest},
		{behaviorAnnotation, a.Spec.Behavior != nil, encodeBehavior(a.Spec.Behavior)},
		{currentMetricsAnnotation, len(current) > 0, current},
		{conditionsAnnotation, len(conditions) > 0, conditions},
	} {
		if !t.isSet {
			continue
		}
		text, err := json.Marshal(t.what)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", t.key, err)
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[t.key] = string(text)
	}
	return out, nil
}

// autoscalerV2 converts from version 1. It uses the annotations that are valid and ignores the others.
func autoscalerV2(o runtime.Object) (runtime.Object, error) {
	a := o.(*autoscalingv1.HorizontalPodAutoscaler)
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: *a.ObjectMeta.DeepCopy()}
	dropV2Annotations(&out.ObjectMeta)
	out.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(a.Spec.ScaleTargetRef),
		MinReplicas:    a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
	}
	if p := a.Spec.TargetCPUUtilizationPercentage; p != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*p)) // it is usually the first metric, and stays so
	}
	for _, m := range parseV2Annotation[[]autoscalingv1.MetricSpec](a, metricsAnnotation) {
		out.Spec.Metrics = append(out.Spec.Metrics, metricV2(m))
	}
	out.Spec.Behavior = parseV2Annotation[*autoscalingv2.HorizontalPodAutoscalerBehavior](a, behaviorAnnotation)
	s := a.Status
	out.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: s.ObservedGeneration, LastScaleTime: s.LastScaleTime, CurrentReplicas: s.CurrentReplicas,
		DesiredReplicas: s.DesiredReplicas,
	}
	if p := s.CurrentCPUUtilizationPercentage; p != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{
			{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: p},
			}},
		}
	}
	if current := parseV2Annotation[[]autoscalingv1.MetricStatus](a, currentMetricsAnnotation); current != nil {
		out.Status.CurrentMetrics = nil // these are more complete
		for _, m := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, metricStatusV2(m))
		}
	}
	for _, c := range parseV2Annotation[[]autoscalingv1.HorizontalPodAutoscalerCondition](a, conditionsAnnotation) {
		out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type: autoscalingv2.HorizontalPodAutoscalerConditionType(
				c.Type,
			), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	return out, nil
}

// parseV2Annotation returns the value of an annotation, or the zero value if it is invalid.
func parseV2Annotation[T any](a *autoscalingv1.HorizontalPodAutoscaler, key string) T {
	var value, zero T
	if json.Unmarshal([]byte(a.Annotations[key]), &value) != nil {
		return zero
	}
	return value
}

// Types of the behaviour annotation. They have the form of upstream's internal type, which has no other field names.
type (
	encodedBehavior struct{ ScaleUp, ScaleDown *encodedRules }
	encodedRules    struct {
		StabilizationWindowSeconds *int32
		SelectPolicy               *autoscalingv2.ScalingPolicySelect
		Policies                   []encodedPolicy
		Tolerance                  *resource.Quantity
	}
	encodedPolicy struct {
		Type                 autoscalingv2.HPAScalingPolicyType
		Value, PeriodSeconds int32
	}
)

func encodeBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) *encodedBehavior {
	if b == nil {
		return nil
	}
	rules := func(r *autoscalingv2.HPAScalingRules) *encodedRules {
		if r == nil {
			return nil
		}
		out := &encodedRules{
			StabilizationWindowSeconds: r.StabilizationWindowSeconds,
			SelectPolicy:               r.SelectPolicy,
			Tolerance:                  r.Tolerance,
		}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies, encodedPolicy{p.Type, p.Value, p.PeriodSeconds})
		}
		return out
	}
	return &encodedBehavior{rules(b.ScaleUp), rules(b.ScaleDown)}
}
