package workload

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

// defaultBehavior fills in the missing parts of an autoscaler's behavior.
func defaultBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	value.SetDefault(&b.ScaleUp, autoscalingv2.HPAScalingRules{})
	value.SetDefault(&b.ScaleUp.StabilizationWindowSeconds, 0)
	value.SetDefault(&b.ScaleUp.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if b.ScaleUp.Policies == nil {
		b.ScaleUp.Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		}
	}
	value.SetDefault(&b.ScaleDown, autoscalingv2.HPAScalingRules{})
	value.SetDefault(&b.ScaleDown.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if b.ScaleDown.Policies == nil {
		b.ScaleDown.Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		}
	}
}

func validateAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if n := value.OrZero(a.Spec.MinReplicas); n < 0 {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), n, "must be greater than or equal to 0"))
	}
	if a.Spec.MaxReplicas == 0 {
		errs = append(errs, field.Required(path.Child("maxReplicas"), ""))
	} else if a.Spec.MaxReplicas < 1 {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), a.Spec.MaxReplicas, "must be greater than or "+
			"equal to 1"))
	}
	if a.Spec.MaxReplicas < value.OrZero(a.Spec.MinReplicas) {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), a.Spec.MaxReplicas,
			"must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, validateScaleTarget(a.Spec.ScaleTargetRef, path.Child("scaleTargetRef"))...)
	for i := range a.Spec.Metrics {
		errs = append(errs, validateMetric(&a.Spec.Metrics[i], path.Child("metrics").Index(i))...)
	}
	if n := a.Spec.MinReplicas; n != nil && *n == 0 &&
		!slices.ContainsFunc(a.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
			return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
		}) {
		errs = append(errs, field.Forbidden(path.Child("metrics"),
			"must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	if b := a.Spec.Behavior; b != nil {
		errs = append(errs, validateScaling(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScaling(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateScaleTarget(ref autoscalingv2.CrossVersionObjectReference, path *field.Path) field.ErrorList {
	return append(validate.PathSegment(ref.Kind, path.Child("kind")),
		validate.PathSegment(ref.Name, path.Child("name"))...)
}

// metricSource is a source that a metric can have, and the check of its fields.
type metricSource struct {
	kind  autoscalingv2.MetricSourceType
	name  string
	set   bool
	check func(*field.Path) field.ErrorList
}

// metricSources returns all sources, with the fields of a metric.
func metricSources(m *autoscalingv2.MetricSpec) []metricSource {
	return []metricSource{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList {
			errs := validateScaleTarget(m.Object.DescribedObject, at.Child("describedObject"))
			errs = append(errs, validateMetricIdentifier(m.Object.Metric, at.Child("metric"))...)
			errs = append(errs, validateTarget(m.Object.Target, at.Child("target"))...)
			if m.Object.Target.Value == nil && m.Object.Target.AverageValue == nil {
				errs = append(errs, field.Required(at.Child("target", "averageValue"),
					"must set either a target value or averageValue"))
			}
			return errs
		}},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList {
			errs := validateMetricIdentifier(m.External.Metric, at.Child("metric"))
			errs = append(errs, validateTarget(m.External.Target, at.Child("target"))...)
			return append(errs, requireOneTarget(m.External.Target, at.Child("target"))...)
		}},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList {
			errs := validateMetricIdentifier(m.Pods.Metric, at.Child("metric"))
			errs = append(errs, validateTarget(m.Pods.Target, at.Child("target"))...)
			if v := m.Pods.Target.AverageValue; v == nil || v.Sign() != 1 {
				errs = append(errs, field.Required(at.Child("target", "averageValue"),
					"must specify a positive target averageValue"))
			}
			return errs
		}},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList {
			errs := validate.Required(string(m.Resource.Name), at.Child("name"), "must specify a resource name")
			return append(errs, validateShare(m.Resource.Target, at.Child("target"))...)
		}},
		{
			autoscalingv2.ContainerResourceMetricSourceType,
			"containerResource",
			m.ContainerResource != nil,
			func(at *field.Path) field.ErrorList {
				errs := validate.Required(m.ContainerResource.Container, at.Child("container"), "must specify a "+
					"container")
				errs = append(errs, validate.Required(string(m.ContainerResource.Name), at.Child("name"),
					"must specify a resource name")...)
				return append(errs, validateShare(m.ContainerResource.Target, at.Child("target"))...)
			},
		},
	}
}

// validateMetric requires exactly the source that the type names. Only the first source that is set is checked,
// whatever the type is.
func validateMetric(m *autoscalingv2.MetricSpec, path *field.Path) field.ErrorList {
	sources := metricSources(m)
	var errs field.ErrorList
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	var kinds []autoscalingv2.MetricSourceType
	var set []string
	for _, s := range sources {
		kinds = append(kinds, s.kind)
		if s.set {
			if len(set) == 0 {
				errs = append(errs, s.check(path.Child(s.name))...)
			}
			set = append(set, s.name)
		}
		if s.kind == m.Type && !s.set {
			errs = append(errs, field.Required(path.Child(s.name),
				"must populate information for the given metric source"))
		}
	}
	if !slices.Contains(kinds, m.Type) {
		errs = append(errs, validate.NotSupported(path.Child("type"), m.Type, kinds))
	}
	for _, s := range sources {
		if len(set) > 1 && s.set && s.kind != m.Type {
			errs = append(errs, field.Forbidden(path.Child(s.name), "must populate the given metric source only"))
		}
	}
	return errs
}

func validateMetricIdentifier(m autoscalingv2.MetricIdentifier, path *field.Path) field.ErrorList {
	if m.Name == "" {
		return field.ErrorList{field.Required(path.Child("name"), "must specify a metric name")}
	}
	return validate.PathSegment(m.Name, path.Child("name"))
}

func validateTarget(t autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch t.Type {
	case "":
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(path.Child("type"), t.Type,
			"must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value.String(), "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(path.Child("averageValue"), t.AverageValue.String(), "must be positive"))
	}
	if u := t.AverageUtilization; u != nil && *u < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *u, "must be greater than 0"))
	}
	return errs
}

// validateShare checks a target for a resource: an average amount or a utilization.
func validateShare(t autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	errs := validateTarget(t, path)
	switch {
	case t.AverageUtilization == nil && t.AverageValue == nil:
		errs = append(errs, field.Required(path.Child("averageUtilization"),
			"must set either a target raw value or a target utilization"))
	case t.AverageUtilization != nil && t.AverageValue != nil:
		errs = append(errs, field.Forbidden(path.Child("averageValue"),
			"may not set both a target raw value and a target utilization"))
	}
	return errs
}

func requireOneTarget(t autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	switch {
	case t.Value == nil && t.AverageValue == nil:
		return field.ErrorList{
			field.Required(path.Child("averageValue"), "must set either a target value for metric or a per-pod target"),
		}
	case t.Value != nil && t.AverageValue != nil:
		return field.ErrorList{
			field.Forbidden(path.Child("value"), "may not set both a target value for metric and a per-pod target"),
		}
	}
	return nil
}

func validateScaling(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if w := r.StabilizationWindowSeconds; w != nil && *w < 0 {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *w,
			"must be greater than or equal to zero"))
	} else if w != nil && *w > 3600 {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *w, "must be less than or equal "+
			"to 3600"))
	}
	if r.SelectPolicy != nil {
		errs = append(errs, validate.Supported(*r.SelectPolicy, []autoscalingv2.ScalingPolicySelect{
			autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect,
			autoscalingv2.MinChangePolicySelect,
		}, path.Child("selectPolicy"))...)
	}
	if t := r.Tolerance; t != nil && t.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), t.String(), "must be greater or equal to 0"))
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		at := path.Child("policies").Index(i)
		errs = append(errs, validate.Supported(p.Type, []autoscalingv2.HPAScalingPolicyType{
			autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy,
		}, at.Child("type"))...)
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
		} else if p.PeriodSeconds > 1800 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, "must be less than or "+
				"equal to 1800"))
		}
	}
	return errs
}

func validateAutoscalerStatus(a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return requireNotNegativeCounts(field.NewPath("status"),
		namedCount{"currentReplicas", int64(a.Status.CurrentReplicas)},
		namedCount{"desiredReplicas", int64(a.Status.DesiredReplicas)})
}
