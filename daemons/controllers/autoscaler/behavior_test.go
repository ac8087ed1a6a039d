package autoscaler

import (
	"math"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func rules(
	choice autoscalingv2.ScalingPolicySelect,
	policies ...autoscalingv2.HPAScalingPolicy,
) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{SelectPolicy: &choice, Policies: policies}
}

func TestScalingPoliciesLimitTheRate(t *testing.T) {
	pods := func(n int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: 60}
	}
	percent := func(n int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: 60}
	}
	const maximum, minimum, off = autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect,
		autoscalingv2.DisabledPolicySelect
	for name, c := range map[string]struct {
		rules  *autoscalingv2.HPAScalingRules
		scaled []TimedValue
		up     bool
		want   int32 // starting from ten
	}{
		"four pods up":             {rules(maximum, pods(4)), nil, true, 14},
		"a quarter up, rounded up": {rules(maximum, percent(25)), nil, true, 13},
		"the larger one":           {rules(maximum, pods(4), percent(100)), nil, true, 20},
		"the smaller one":          {rules(minimum, pods(4), percent(100)), nil, true, 14},
		"not at all":               {rules(off, pods(4)), nil, true, 10},
		"four pods down":           {rules(maximum, pods(4)), nil, false, 6},
		"a quarter down, cut":      {rules(maximum, percent(25)), nil, false, 7},
		"the larger step down":     {rules(maximum, pods(4), percent(50)), nil, false, 5},
		"the smaller step down":    {rules(minimum, pods(4), percent(50)), nil, false, 6},
		"more than there are":      {rules(maximum, pods(40)), nil, false, 0},
		"three were added in time": {rules(maximum, pods(4)), []TimedValue{{epoch.Add(-59 * time.Second), 3}}, true,
			11},
		"three were added before": {rules(maximum, pods(4)), []TimedValue{{epoch.Add(-60 * time.Second), 3}}, true,
			14},
		"three were taken away":  {rules(maximum, pods(4)), []TimedValue{{epoch.Add(-time.Second), -3}}, false, 9},
		"taken away, and now up": {rules(maximum, pods(4)), []TimedValue{{epoch.Add(-time.Second), -3}}, true, 17},
		"without rules up":       {nil, nil, true, math.MaxInt32},
	} {
		if got := rateLimit(&History{Scaled: c.scaled}, c.rules, 10, epoch, c.up); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestStabilizationWindowsApplyInBothDirections(t *testing.T) {
	behavior := &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp:   &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](60)},
		ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](120)},
	}
	for _, c := range []struct {
		requests int32
		history  []TimedValue
		want     int32
		reason   string
	}{
		{8, []TimedValue{{epoch.Add(-30 * time.Second), 6}}, 6, "ScaleUpStabilized"},
		{8, []TimedValue{{epoch.Add(-60 * time.Second), 6}}, 8, "ReadyForNewScale"},
		{8, []TimedValue{{epoch.Add(-30 * time.Second), 3}}, 5, "ScaleUpStabilized"},
		{2, []TimedValue{{epoch.Add(-90 * time.Second), 4}}, 4, "ScaleDownStabilized"},
		{2, []TimedValue{{epoch.Add(-120 * time.Second), 4}}, 2, "ReadyForNewScale"},
		{2, []TimedValue{{epoch.Add(-90 * time.Second), 9}}, 5, "ScaleDownStabilized"},
	} {
		seen := &conditions{now: epoch}
		if got := stabilize(&History{Recommended: c.history}, 5*time.Minute, behavior, 5, c.requests, epoch,
			seen); got != c.want ||
			seen.list[0].Reason != c.reason {
			t.Errorf("%d is asked for after %v: %d, %s; want %d, %s", c.requests, c.history, got, seen.list[0].Reason,
				c.want, c.reason)
		}
	}
}

func TestReplicasStayWithinBoundsAndPolicies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minimum, maximum := rapid.Int32Range(1, 5).Draw(t, "least"), rapid.Int32Range(5, 40).Draw(t, "most")
		step := rapid.Int32Range(1, 6).Draw(t, "step")
		by := rules(autoscalingv2.MaxChangePolicySelect,
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: step, PeriodSeconds: 60})
		behavior := &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: by, ScaleDown: by}
		h, now := &History{}, epoch
		current := rapid.Int32Range(minimum, maximum).Draw(t, "current")
		before := []TimedValue{{now, current}}
		for range 40 {
			// zero is possible: two syncs may happen at the same time
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			h.prune(now)
			seen := &conditions{now: now}
			desired := stabilize(h, 5*time.Minute, behavior, current, rapid.Int32Range(0, 60).Draw(t, "asked"), now,
				seen)
			next := limitReplicas(h, behavior, current, desired, minimum, maximum, now, seen)
			if next != current {
				h.Scaled = append(h.Scaled, TimedValue{now, next - current})
				current = next
			}
			before = append(before, TimedValue{now, current})
			if current < minimum || current > maximum {
				t.Fatalf("%d replicas, of %d to %d", current, minimum, maximum)
			}
			for _, m := range before {
				if now.Sub(m.At) < time.Minute && (current-m.N > 2*step || m.N-current > 2*step) {
					t.Fatalf("%d replicas within a minute of %d, by steps of %d", current, m.N, step)
				}
			}
		}
	})
}
