package workload

import (
	"fmt"
	"strconv"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/value"
)

func HorizontalPodAutoscalers() *kind.Kind {
	return &kind.Kind{
		GVK:      autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
		Resource: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler", ShortNames: []string{"hpa"},
		Categories: []string{"all"},
		Namespaced: true,
		New:        kind.New[autoscalingv2.HorizontalPodAutoscaler](),
		NewList:    kind.New[autoscalingv2.HorizontalPodAutoscalerList](),
		Aliases: []kind.Alias{{
			GVK:     autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
			New:     kind.New[autoscalingv1.HorizontalPodAutoscaler](),
			NewList: kind.New[autoscalingv1.HorizontalPodAutoscalerList](),
			FromHub: autoscalerV1, ToHub: autoscalerV2,
		}},
		Default: kind.Adapt(func(a *autoscalingv2.HorizontalPodAutoscaler) {
			dropV2Annotations(&a.ObjectMeta)
			value.SetDefault(&a.Spec.MinReplicas, 1)
			if len(a.Spec.Metrics) == 0 {
				a.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(80)}
			}
			if a.Spec.Behavior != nil {
				defaultBehavior(a.Spec.Behavior)
			}
		}),
		PrepareCreate: kind.Adapt(func(a *autoscalingv2.HorizontalPodAutoscaler) {
			a.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
		}),
		PrepareUpdate: kind.AdaptUpdate(func(a, old *autoscalingv2.HorizontalPodAutoscaler) { a.Status = old.Status }),
		Validate:      kind.AdaptValidate(validateAutoscaler),
		Columns:       kind.NewColumns("Reference", "Targets", "MinPods", "MaxPods", "Replicas:integer", "Age"),
		Row: kind.AdaptRow(func(a *autoscalingv2.HorizontalPodAutoscaler) []any {
			minimum := "<unset>"
			if a.Spec.MinReplicas != nil {
				minimum = strconv.Itoa(int(*a.Spec.MinReplicas))
			}
			target := a.Spec.ScaleTargetRef
			return []any{
				target.Kind + "/" + target.Name,
				autoscalerTargets(a),
				minimum,
				strconv.Itoa(int(a.Spec.MaxReplicas)),
				int64(a.Status.CurrentReplicas),
				cell.Age(a.CreationTimestamp),
			}
		}),
		Status: kind.NewStatus(
			func(to, from *autoscalingv2.HorizontalPodAutoscaler) { to.Status = *from.Status.DeepCopy() },
			validateAutoscalerStatus,
		),
	}
}

func cpuMetric(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

func isCPUUtilization(m autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
		m.Resource.Name == corev1.ResourceCPU &&
		m.Resource.Target.AverageUtilization != nil
}

func autoscalerTargets(a *autoscalingv2.HorizontalPodAutoscaler) string {
	var list []string
	for i, m := range a.Spec.Metrics {
		var target autoscalingv2.MetricTarget
		var current autoscalingv2.MetricValueStatus
		name := ""
		if i < len(a.Status.CurrentMetrics) {
			if r := a.Status.CurrentMetrics[i].Resource; r != nil {
				current = r.Current
			}
		}
		switch {
		case m.Resource != nil:
			target, name = m.Resource.Target, string(m.Resource.Name)+": "
		case m.ContainerResource != nil:
			target, name = m.ContainerResource.Target, string(m.ContainerResource.Name)+": "
		case m.Pods != nil:
			target = m.Pods.Target
		case m.Object != nil:
			target = m.Object.Target
		case m.External != nil:
			target = m.External.Target
		}
		list = append(list, name+metricValue(current.AverageUtilization, current)+"/"+metricTarget(target))
	}
	if len(list) > 2 {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:2], ", "), len(list)-2)
	}
	return cell.OrNone(strings.Join(list, ", "))
}

func metricValue(utilization *int32, v autoscalingv2.MetricValueStatus) string {
	switch {
	case utilization != nil:
		return strconv.Itoa(int(*utilization)) + "%"
	case v.AverageValue != nil:
		return v.AverageValue.String()
	case v.Value != nil:
		return v.Value.String()
	default:
		return "<unknown>"
	}
}

func metricTarget(t autoscalingv2.MetricTarget) string {
	switch {
	case t.AverageUtilization != nil:
		return strconv.Itoa(int(*t.AverageUtilization)) + "%"
	case t.AverageValue != nil:
		return t.AverageValue.String() + " (avg)"
	case t.Value != nil:
		return t.Value.String()
	default:
		return "<auto>"
	}
}
