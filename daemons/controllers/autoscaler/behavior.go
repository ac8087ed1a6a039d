package autoscaler

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// History records an autoscaler's recommendations and changes for up to an hour. It is lost when the process ends, and
// then starts with the current number of replicas.
type History struct {
	Recommended []TimedValue // numbers of replicas that the metrics asked for
	Scaled      []TimedValue // changes of the number of replicas; positive if pods were added
}

// TimedValue is a number with its time.
type TimedValue struct {
	At time.Time
	N  int32
}

// maxWindow is the maximum length of any window or period of a behavior.
const maxWindow = time.Hour

// prune removes entries that are older than any window or period.
func (h *History) prune(now time.Time) {
	for _, list := range []*[]TimedValue{&h.Recommended, &h.Scaled} {
		kept := (*list)[:0]
		for _, m := range *list {
			if m.At.After(now.Add(-maxWindow - time.Second)) {
				kept = append(kept, m)
			}
		}
		*list = kept
	}
}

// minScaleUpLimit is the number of replicas to which an autoscaler without a behavior may always scale up at once.
// Larger targets may double.
const minScaleUpLimit = 4

// stabilize applies the stabilization windows to a recommendation. Scaling up asks for no more than the lowest recent
// recommendation, scaling down for no fewer than the highest. Without a behavior it returns the highest recent
// recommendation, even if that exceeds the current number.
func stabilize(
	h *History,
	downWindow time.Duration,
	behavior *autoscalingv2.HorizontalPodAutoscalerBehavior,
	current, desired int32,
	now time.Time,
	c *conditions,
) int32 {
	up, down := time.Duration(0), downWindow
	if behavior != nil {
		up, down = stabilizationWindow(behavior.ScaleUp, 0), stabilizationWindow(behavior.ScaleDown, downWindow)
	}
	minimum, maximum := desired, desired
	for _, m := range h.Recommended {
		if m.At.After(now.Add(-up)) {
			minimum = min(minimum, m.N)
		}
		if m.At.After(now.Add(-down)) {
			maximum = max(maximum, m.N)
		}
	}
	h.Recommended = append(h.Recommended, TimedValue{now, desired})
	out := min(max(current, minimum), maximum)
	if behavior == nil {
		out = maximum
	}
	switch {
	case out < desired:
		c.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ScaleUpStabilized",
			"recent recommendations were lower than current one, applying the lowest recent recommendation")
	case out > desired:
		c.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ScaleDownStabilized",
			"recent recommendations were higher than current one, applying the highest recent recommendation")
	default:
		c.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "ReadyForNewScale",
			"recommended size matches current size")
	}
	return out
}

func stabilizationWindow(rules *autoscalingv2.HPAScalingRules, byDefault time.Duration) time.Duration {
	if rules == nil || rules.StabilizationWindowSeconds == nil {
		return byDefault
	}
	return time.Duration(*rules.StabilizationWindowSeconds) * time.Second
}

// limitReplicas restricts a number of replicas to the autoscaler's bounds and to the rates that its scaling policies
// allow.
func limitReplicas(
	h *History,
	behavior *autoscalingv2.HorizontalPodAutoscalerBehavior,
	current, desired, minimum, maximum int32,
	now time.Time,
	c *conditions,
) int32 {
	fastest, slowest := int32(math.MaxInt32), int32(0) // upper and lower bound by the allowed rates
	switch {
	case behavior == nil:
		fastest = max(minScaleUpLimit, 2*min(current, math.MaxInt32/2))
	case desired > current:
		fastest = max(current, rateLimit(h, behavior.ScaleUp, current, now, true))
	case desired < current:
		slowest = min(current, rateLimit(h, behavior.ScaleDown, current, now, false))
	}
	limited := func(to int32, reason, message string) int32 {
		c.set(autoscalingv2.ScalingLimited, corev1.ConditionTrue, reason, "%s", message)
		return to
	}
	switch {
	case desired > min(maximum, fastest) && fastest < maximum:
		return limited(fastest, "ScaleUpLimit",
			"the desired replica count is increasing faster than the maximum scale rate")
	case desired > maximum:
		return limited(maximum, "TooManyReplicas", "the desired replica count is more than the maximum replica count")
	case desired < max(minimum, slowest) && slowest > minimum:
		return limited(slowest, "ScaleDownLimit",
			"the desired replica count is decreasing faster than the maximum scale rate")
	case desired < minimum:
		return limited(minimum, "TooFewReplicas", "the desired replica count is less than the minimum replica count")
	}
	c.set(autoscalingv2.ScalingLimited, corev1.ConditionFalse, "DesiredWithinRange",
		"the desired count is within the acceptable range")
	return desired
}

// rateLimit returns the number of replicas that the scaling policies allow at now.
func rateLimit(h *History, rules *autoscalingv2.HPAScalingRules, current int32, now time.Time, up bool) int32 {
	if rules == nil {
		if up {
			return math.MaxInt32
		}
		return 0
	}
	choice := autoscalingv2.MaxChangePolicySelect
	if rules.SelectPolicy != nil {
		choice = *rules.SelectPolicy
	}
	if choice == autoscalingv2.DisabledPolicySelect || len(rules.Policies) == 0 {
		return current
	}
	farthest := int32(-1)
	for _, policy := range rules.Policies {
		start := current // the number of replicas when the period began
		for _, m := range h.Scaled {
			if m.At.After(now.Add(-time.Duration(policy.PeriodSeconds) * time.Second)) {
				start -= m.N
			}
		}
		change := float64(policy.Value)
		if policy.Type == autoscalingv2.PercentScalingPolicy {
			change = float64(start) * float64(policy.Value) / 100
		}
		to := int32(math.Max(0, math.Trunc(float64(start)-change)))
		if up {
			to = ceil(float64(start) + change)
		}
		higher := up == (choice == autoscalingv2.MaxChangePolicySelect)
		if farthest < 0 || higher && to > farthest || !higher && to < farthest {
			farthest = to
		}
	}
	return farthest
}
