package node

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionTaints lists the taints that follow from conditions.
var conditionTaints = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
}

// Taints returns the taints that a node should have: those that others manage, and those that follow from its
// conditions and from being cordoned. Existing taints stay in place. New ones are appended in the order of the
// conditions. evict adds the taint NoExecute to a node that is not ready. Without evict, such a node retains an
// existing one, with the key for its present condition.
func Taints(node *corev1.Node, evict bool, now time.Time) []corev1.Taint {
	var want []corev1.Taint
	add := func(key string, effect corev1.TaintEffect) {
		want = append(want, corev1.Taint{Key: key, Effect: effect})
	}
	for _, c := range node.Status.Conditions {
		for _, f := range conditionTaints {
			if f.condition == c.Type && f.status == c.Status {
				add(f.key, corev1.TaintEffectNoSchedule)
			}
		}
	}
	if findCondition(node, corev1.NodeReady) == nil { // it has not reported yet; the API server added this taint
		add(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)
	}
	if node.Spec.Unschedulable {
		add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	}
	if key := notReadyTaint(node); key != "" && (evict || hasEvictingTaint(node.Spec.Taints)) {
		add(key, corev1.TaintEffectNoExecute)
	}
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if !isManagedTaint(&t) || slices.ContainsFunc(want,
			func(taint corev1.Taint) bool { return taint.MatchTaint(&t) }) {
			out = append(out, t)
		}
	}
	for _, t := range want {
		if !slices.ContainsFunc(out, func(taint corev1.Taint) bool { return taint.MatchTaint(&t) }) {
			t.TimeAdded = &metav1.Time{Time: now.Truncate(time.Second)}
			out = append(out, t)
		}
	}
	return out
}

// notReadyTaint returns the key of the taint for a node that is not ready. It returns "" if the node is ready or has
// not reported yet.
func notReadyTaint(node *corev1.Node) string {
	if c := findCondition(node, corev1.NodeReady); c != nil {
		switch c.Status {
		case corev1.ConditionFalse:
			return corev1.TaintNodeNotReady
		case corev1.ConditionUnknown:
			return corev1.TaintNodeUnreachable
		}
	}
	return ""
}

// hasEvictingTaint reports whether taints evict pods because their node is not ready.
func hasEvictingTaint(taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints,
		func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute && isNotReadyTaint(t.Key) })
}

func isNotReadyTaint(key string) bool {
	return key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

// isManagedTaint reports whether this controller manages a taint. Taints with the same key and another effect are not
// managed.
func isManagedTaint(t *corev1.Taint) bool {
	switch t.Effect {
	case corev1.TaintEffectNoExecute:
		return isNotReadyTaint(t.Key)
	case corev1.TaintEffectNoSchedule:
		if t.Key == corev1.TaintNodeUnschedulable {
			return true
		}
		for i := range conditionTaints {
			if conditionTaints[i].key == t.Key {
				return true
			}
		}
	}
	return false
}
