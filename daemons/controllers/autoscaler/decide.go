package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions holds an autoscaler's conditions while they change.
type conditions struct {
	list []autoscalingv2.HorizontalPodAutoscalerCondition
	now  time.Time
}

func (c *conditions) set(
	kind autoscalingv2.HorizontalPodAutoscalerConditionType,
	status corev1.ConditionStatus,
	reason, format string,
	args ...any,
) {
	i := slices.IndexFunc(c.list,
		func(old autoscalingv2.HorizontalPodAutoscalerCondition) bool { return old.Type == kind })
	if i < 0 {
		i, c.list = len(c.list), append(c.list, autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
	}
	at := &c.list[i]
	if at.Status != status {
		at.Status, at.LastTransitionTime = status, metav1.NewTime(c.now)
	}
	at.Reason, at.Message = reason, fmt.Sprintf(format, args...)
}

// isTrue reports whether a condition exists and is true.
func (c *conditions) isTrue(kind autoscalingv2.HorizontalPodAutoscalerConditionType) bool {
	return slices.ContainsFunc(c.list, func(condition autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return condition.Type == kind && condition.Status == corev1.ConditionTrue
	})
}

// setScaledToZero records, after a rescale, whether the autoscaler itself scaled the target to zero. Only then may it
// scale the target up again.
func (c *conditions) setScaledToZero(hpa *autoscalingv2.HorizontalPodAutoscaler, from, to int32) {
	if from > 0 && to == 0 && minReplicas(hpa) == 0 && hasMetricWithoutPods(hpa) {
		c.set(autoscalingv2.ScaledToZero, corev1.ConditionTrue, "ScaledToZero",
			"the HPA controller scaled the workload to zero")
	} else {
		c.set(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero", "the HPA controller did not "+
			"scale the workload to zero")
	}
}

// minReplicas returns the lowest number of replicas that an autoscaler may ask for.
func minReplicas(hpa *autoscalingv2.HorizontalPodAutoscaler) int32 {
	if hpa.Spec.MinReplicas == nil {
		return 1
	}
	return *hpa.Spec.MinReplicas
}

// hasMetricWithoutPods reports whether an autoscaler has a metric that exists even if the target has no pods.
func hasMetricWithoutPods(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(hpa.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

// Outcome holds the result of one sync of an autoscaler.
type Outcome struct {
	Replicas int32
	Rescale  bool
	Reason   string // why the size changes, for the event
	Metrics  []autoscalingv2.MetricStatus
	Events   []Event
	Err      error
}

// Event is an event to record for an autoscaler.
type Event struct{ Type, Reason, Message string }

func (o *Outcome) warn(reason string, err error) {
	o.Events = append(o.Events, Event{corev1.EventTypeWarning, reason, err.Error()})
}

// Decide computes how many replicas a target should have. If a metric cannot be read, the result is never lower than
// the current number.
func Decide(
	ctx context.Context,
	hpa *autoscalingv2.HorizontalPodAutoscaler,
	t target,
	m Metrics,
	h *History,
	c *conditions,
) Outcome {
	minimum, maximum := minReplicas(hpa), hpa.Spec.MaxReplicas
	asleep := c.isTrue(autoscalingv2.ScaledToZero) && (minimum != 0 || hasMetricWithoutPods(hpa))
	h.prune(t.now)
	if len(h.Recommended) == 0 {
		h.Recommended = append(h.Recommended, TimedValue{t.now, t.specReplicas})
	}
	o := Outcome{Replicas: t.specReplicas}
	switch {
	case t.specReplicas == 0 && !asleep: // a user disabled the target by scaling it to zero
		o.Replicas = 0
		c.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled",
			"scaling is disabled since the replica count of the target is zero")
		return o
	case t.specReplicas > maximum:
		o.Replicas, o.Reason = maximum, "Current number of replicas above Spec.MaxReplicas"
	case t.specReplicas < minimum && t.specReplicas > 0:
		o.Replicas, o.Reason = minimum, "Current number of replicas below Spec.MinReplicas"
	default:
		if t.findPods != nil {
			if o.Err = t.findPods(&t); o.Err != nil {
				o.warn("FailedComputeMetricsReplicas", o.Err)
				return o
			}
		}
		requests, by := t.highestRecommendation(ctx, hpa, m, &o, c)
		if o.Err != nil {
			return o
		}
		switch {
		case t.specReplicas == 0 && requests < minimum: // minReplicas was zero when the target was scaled to zero
			o.Reason = "Current number of replicas below Spec.MinReplicas"
		case requests > t.specReplicas:
			o.Reason = by + " above target"
		case requests < t.specReplicas:
			o.Reason = "All metrics below target"
		}
		stabilized := stabilize(h, t.downWindow, hpa.Spec.Behavior, t.specReplicas, requests, t.now, c)
		o.Replicas = limitReplicas(h, hpa.Spec.Behavior, t.specReplicas, stabilized, minimum, maximum, t.now, c)
		if t.specReplicas == 0 {
			o.Replicas = max(o.Replicas, minimum)
		}
	}
	o.Rescale = o.Replicas != t.specReplicas
	return o
}

// highestRecommendation returns the highest number of replicas that any metric asks for, and a description of that
// metric.
func (t target) highestRecommendation(
	ctx context.Context,
	hpa *autoscalingv2.HorizontalPodAutoscaler,
	m Metrics,
	o *Outcome,
	c *conditions,
) (maximum int32, by string) {
	var first *failure
	var cause error // the full error of the first failure
	failed := 0
	for _, spec := range hpa.Spec.Metrics {
		done := func(int32, *failure) {}
		if t.observe != nil {
			done = t.observe(spec.Type)
		}
		a, f := t.measure(ctx, m, spec)
		done(a.replicas, f)
		if f != nil {
			failed++
			o.warn(f.reason, f.err)
			o.Metrics = append(o.Metrics, autoscalingv2.MetricStatus{})
			if first == nil {
				first, cause = f, withMetric(spec, f.err)
			}
			continue
		}
		o.Metrics = append(o.Metrics, a.status)
		if by == "" || a.replicas > maximum {
			maximum, by = a.replicas, a.name
		}
	}
	if failed > 0 && (by == "" || maximum < t.specReplicas) {
		c.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, first.reason,
			"the HPA was unable to compute the replica count: %v", first.err)
		o.Err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", failed, len(hpa.Spec.Metrics),
			cause)
		o.warn("FailedComputeMetricsReplicas", o.Err)
		return t.specReplicas, ""
	}
	c.set(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound",
		"the HPA was able to successfully calculate a replica count from %s", by)
	return maximum, by
}

// effectiveTolerance returns the default tolerance with the autoscaler's own values in its place.
func effectiveTolerance(byDefault Tolerance, behavior *autoscalingv2.HorizontalPodAutoscalerBehavior) Tolerance {
	t := byDefault
	if behavior != nil && behavior.ScaleDown != nil && behavior.ScaleDown.Tolerance != nil {
		t.Down = behavior.ScaleDown.Tolerance.AsApproximateFloat64()
	}
	if behavior != nil && behavior.ScaleUp != nil && behavior.ScaleUp.Tolerance != nil {
		t.Up = behavior.ScaleUp.Tolerance.AsApproximateFloat64()
	}
	return t
}
