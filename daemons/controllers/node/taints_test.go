package node

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestTaintsFollowConditions(t *testing.T) { // S04
	now := time.Unix(1000, 0)
	with := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		if kind == corev1.NodeReady {
			n.Status.Conditions = nil
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
		return n
	}
	cordoned := with(corev1.NodeReady, corev1.ConditionTrue)
	cordoned.Spec.Unschedulable = true
	recovered := with(corev1.NodeReady, corev1.ConditionTrue)
	recovered.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	for _, c := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"healthy", with(corev1.NodeReady, corev1.ConditionTrue), "[]"},
		{"never reported", &corev1.Node{}, "[node.kubernetes.io/not-ready:NoSchedule]"},
		{"not ready", with(corev1.NodeReady, corev1.ConditionFalse), "[node.kubernetes.io/not-ready:NoSchedule node.kubernetes.io/not-ready:NoExecute]"},
		{"silent", with(corev1.NodeReady, corev1.ConditionUnknown), "[node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute]"},
		{"pressed", with(corev1.NodeMemoryPressure, corev1.ConditionTrue), "[node.kubernetes.io/memory-pressure:NoSchedule]"},
		{"cordoned", cordoned, "[node.kubernetes.io/unschedulable:NoSchedule]"},
		{"recovered", recovered, "[mine:NoSchedule]"},
	} {
		var got []string
		for _, taint := range Taints(c.node, now) {
			got = append(got, taint.Key+":"+string(taint.Effect))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}
