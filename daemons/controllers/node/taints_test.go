package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Proves S04.
//
//style:long a table of conditions, with the taints for each
func TestTaintsFollowConditions(t *testing.T) {
	now := time.Unix(1000, 0)
	with := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
		if kind == corev1.NodeReady {
			n.Status.Conditions = nil
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
		return n
	}
	marked := func(n *corev1.Node, taints ...string) *corev1.Node {
		for _, taint := range taints {
			key, effect, _ := strings.Cut(taint, ":")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
		}
		return n
	}
	const notReady, unreachable = corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	many := &corev1.Node{
		Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{
				Type:   corev1.NodeNetworkUnavailable,
				Status: corev1.ConditionTrue,
			}, {Type: corev1.NodePIDPressure, Status: corev1.ConditionTrue},
			{
				Type:   corev1.NodeMemoryPressure,
				Status: corev1.ConditionTrue,
			}, {Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
	}
	cordoned := with(corev1.NodeReady, corev1.ConditionTrue)
	cordoned.Spec.Unschedulable = true
	for _, c := range []struct {
		name  string
		node  *corev1.Node
		evict bool
		want  string
	}{
		{"healthy", with(corev1.NodeReady, corev1.ConditionTrue), true, "[]"},
		{"never reported", &corev1.Node{}, true, "[node.kubernetes.io/not-ready:NoSchedule]"},
		{"not ready", with(corev1.NodeReady, corev1.ConditionFalse), true, "[node.kubernetes.io/not-ready:NoSchedule " +
			"node.kubernetes.io/not-ready:NoExecute]"},
		{"silent", with(corev1.NodeReady, corev1.ConditionUnknown), true,
			"[node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute]"},
		{"silent, while its pods wait", with(corev1.NodeReady, corev1.ConditionUnknown), false,
			"[node.kubernetes.io/unreachable:NoSchedule]"},
		{"silent, and was not ready",
			marked(with(corev1.NodeReady, corev1.ConditionUnknown), notReady+":NoExecute", "mine:NoExecute"), false,
			"[mine:NoExecute node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute]"},
		{"not ready, and was silent",
			marked(with(corev1.NodeReady, corev1.ConditionFalse), unreachable+":NoSchedule", unreachable+":NoExecute"),
			false,
			"[node.kubernetes.io/not-ready:NoSchedule node.kubernetes.io/not-ready:NoExecute]"},
		{"pressed", with(corev1.NodeMemoryPressure, corev1.ConditionTrue), true,
			"[node.kubernetes.io/memory-pressure:NoSchedule]"},
		{"cordoned", cordoned, true, "[node.kubernetes.io/unschedulable:NoSchedule]"},
		{"recovered", marked(with(corev1.NodeReady, corev1.ConditionTrue), "mine:NoSchedule", unreachable+":NoExecute"),
			true, "[mine:NoSchedule]"},
		{"taints stay where they are",
			marked(with(corev1.NodeReady, corev1.ConditionUnknown), unreachable+":NoExecute", "mine:NoSchedule",
				unreachable+":NoSchedule"), true,
			"[node.kubernetes.io/unreachable:NoExecute mine:NoSchedule node.kubernetes.io/unreachable:NoSchedule]"},
		{"somebody's taints of the same names",
			marked(with(corev1.NodeReady, corev1.ConditionTrue), "node.kubernetes.io/memory-pressure:NoExecute",
				notReady+":PreferNoSchedule"), true,
			"[node.kubernetes.io/memory-pressure:NoExecute node.kubernetes.io/not-ready:PreferNoSchedule]"},
		{"all at once, in the order of the conditions", many, true,
			"[node.kubernetes.io/network-unavailable:NoSchedule node.kubernetes.io/pid-pressure:NoSchedule " +
				"node.kubernetes.io/memory-pressure:NoSchedule node.kubernetes.io/not-ready:NoSchedule " +
				"node.kubernetes.io/unschedulable:NoSchedule node.kubernetes.io/not-ready:NoExecute]"},
	} {
		var got []string
		for _, taint := range Taints(c.node, c.evict, now) {
			got = append(got, taint.Key+":"+string(taint.Effect))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}
