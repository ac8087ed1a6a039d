package disruption

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/daemons/controllers/loop"
)

// evictionTimeout is how long an evicted pod counts as gone before its deletion is observed. A pod that still exists
// after that was not evicted.
const evictionTimeout = 2 * time.Minute

// Status returns a budget's status for its pods. expected is how many pods their controllers want, or the number of
// pods if the budget is an absolute minimum. again is the time after which the status may change without an event; zero
// means never.
func Status(
	b *policyv1.PodDisruptionBudget,
	pods []*corev1.Pod,
	expected int,
	now time.Time,
) (status policyv1.PodDisruptionBudgetStatus, again time.Duration, err error) {
	desired, err := desiredHealthy(b, expected)
	if err != nil {
		return policyv1.PodDisruptionBudgetStatus{}, 0, err
	}
	status = *b.Status.DeepCopy()
	status.ObservedGeneration = b.Generation
	status.ExpectedPods, status.DesiredHealthy, status.CurrentHealthy = clampCount(expected), clampCount(desired), 0
	status.DisruptedPods = nil
	for _, pod := range pods {
		evicted, ok := b.Status.DisruptedPods[pod.Name]
		if ok && pod.DeletionTimestamp == nil {
			if left := evicted.Add(evictionTimeout).Sub(now); left > 0 {
				if status.DisruptedPods == nil {
					status.DisruptedPods = map[string]metav1.Time{}
				}
				status.DisruptedPods[pod.Name] = evicted
				if again == 0 || left < again {
					again = left
				}
				continue // it counts as gone already
			}
		}
		if ready, _ := loop.IsReady(pod); ready && pod.DeletionTimestamp == nil {
			status.CurrentHealthy++
		}
	}
	status.DisruptionsAllowed = max(status.CurrentHealthy-status.DesiredHealthy, 0)
	if expected <= 0 {
		status.DisruptionsAllowed = 0
	}
	condition := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
		Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Generation,
		LastTransitionTime: metav1.NewTime(now)}
	if status.DisruptionsAllowed > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	apimeta.SetStatusCondition(&status.Conditions, condition)
	return status, again, nil
}

// clampCount limits n to the range of the status field: the numbers that clients ask for may add up to more than an
// int32.
func clampCount(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// failedStatus returns the status of a budget that cannot be computed: nothing may be evicted. Its generation stays
// unobserved.
func failedStatus(b *policyv1.PodDisruptionBudget, cause error, now time.Time) policyv1.PodDisruptionBudgetStatus {
	status := *b.Status.DeepCopy()
	status.DisruptionsAllowed = 0
	apimeta.SetStatusCondition(
		&status.Conditions,
		metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.SyncFailedReason, Message: cause.Error(), ObservedGeneration: status.ObservedGeneration,
			LastTransitionTime: metav1.NewTime(now)},
	)
	return status
}

// desiredHealthy returns how many of the expected pods must stay healthy.
func desiredHealthy(b *policyv1.PodDisruptionBudget, expected int) (int, error) {
	switch {
	case b.Spec.MaxUnavailable != nil:
		maximum, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
		if err != nil {
			return 0, fmt.Errorf("read spec.maxUnavailable: %w", err)
		}
		return max(expected-maximum, 0), nil
	case b.Spec.MinAvailable != nil:
		must, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, expected, true)
		if err != nil {
			return 0, fmt.Errorf("read spec.minAvailable: %w", err)
		}
		return must, nil
	}
	return 0, nil
}

// countsExistingPods reports whether the expected number is the number of existing pods. An absolute minimum does not
// depend on what controllers want.
func countsExistingPods(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable == nil && (b.Spec.MinAvailable == nil || b.Spec.MinAvailable.Type == intstr.Int)
}
