package podgc

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(name, node string, phase corev1.PodPhase, deleting bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: phase},
	}
	if deleting {
		p.DeletionTimestamp = &metav1.Time{}
	}
	return p
}

// Proves S21.
func TestPodsToDelete(t *testing.T) {
	at := func(age time.Duration, reason string, p *corev1.Pod) *corev1.Pod {
		p.CreationTimestamp, p.Status.Reason = metav1.NewTime(time.Unix(100_000, 0).Add(-age)), reason
		return p
	}
	const running = corev1.PodRunning
	for name, c := range map[string]struct {
		pod              *corev1.Pod
		isGone, orphaned bool
	}{
		"of a node that is gone":                       {pod("p", "lost", running, false), true, true},
		"of a node that is gone, and on its way":       {pod("p", "lost", running, true), true, true},
		"finished, of a node that is gone":             {pod("p", "lost", corev1.PodSucceeded, false), true, true},
		"deleted before it had a node":                 {pod("p", "", corev1.PodPending, true), true, false},
		"waiting for a node":                           {pod("p", "", corev1.PodPending, false), false, false},
		"deleted on a node that is out of service":     {pod("p", "out", running, true), true, false},
		"not deleted on a node that is out of service": {pod("p", "out", running, false), false, false},
		"deleted on a node that works":                 {pod("p", "n", running, true), false, false},
	} {
		list := PodsToDelete([]*corev1.Pod{c.pod}, map[string]bool{"lost": true}, map[string]bool{"out": true}, 1)
		if (len(list) == 1) != c.isGone || c.isGone && list[0].isOrphaned != c.orphaned {
			t.Errorf("%s: %v", name, list)
		}
	}
	finished := []*corev1.Pod{
		at(time.Hour, "",
			pod("old", "n", corev1.PodSucceeded, false)), at(time.Minute, "", pod("new", "n", corev1.PodFailed, false)),
		at(time.Second, "Evicted",
			pod("evicted", "n", corev1.PodFailed, false)), at(2*time.Hour, "", pod("works", "n", running, false)),
	}
	for threshold, want := range map[int]string{0: "[]", 1: "[evicted old]", 2: "[evicted]", 3: "[]"} {
		names := []string{}
		for _, d := range PodsToDelete(finished, nil, nil, threshold) {
			names = append(names, d.pod.Name)
		}
		if fmt.Sprint(names) != want {
			t.Errorf("%d may stay: %v go, want %s", threshold, names, want)
		}
	}
}

// Proves S21.
func TestOutOfServiceNodesAreTaintedAndNotReady(t *testing.T) {
	for _, c := range []struct {
		taint string
		ready corev1.ConditionStatus
		want  bool
	}{
		{corev1.TaintNodeOutOfService, corev1.ConditionUnknown, true},
		{corev1.TaintNodeOutOfService, corev1.ConditionFalse, true},
		{corev1.TaintNodeOutOfService, corev1.ConditionTrue, false},
		{corev1.TaintNodeNotReady, corev1.ConditionFalse, false},
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: c.taint, Effect: corev1.TaintEffectNoExecute}}},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.ready}},
			},
		}
		if got := outOfServiceNodes([]*corev1.Node{n}); got["n"] != c.want {
			t.Errorf("%s with Ready %s: %v", c.taint, c.ready, got)
		}
	}
}
