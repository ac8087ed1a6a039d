package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Recreate continues only when no old set has pods or will create any.
// Proves S19.
func TestASetIsEmptyWhenItsPodsHaveEnded(t *testing.T) {
	set := func(wanted int32, observed int64, counted int32) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Generation: 2},
			Spec:       appsv1.ReplicaSetSpec{Replicas: &wanted},
			Status:     appsv1.ReplicaSetStatus{ObservedGeneration: observed, Replicas: counted},
		}
	}
	pod := func(phase corev1.PodPhase, going bool) []*corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		if going {
			p.DeletionTimestamp = &metav1.Time{}
		}
		return []*corev1.Pod{p}
	}
	for name, c := range map[string]struct {
		set  *appsv1.ReplicaSet
		pods []*corev1.Pod
		want bool
	}{
		"nothing left":          {set(0, 2, 0), nil, true},
		"a finished pod":        {set(0, 2, 0), pod(corev1.PodFailed, false), true},
		"pods wanted":           {set(1, 2, 0), nil, false},
		"not yet seen":          {set(0, 1, 0), nil, false},
		"pods counted":          {set(0, 2, 1), nil, false},
		"a pod that is ending":  {set(0, 2, 0), pod(corev1.PodRunning, true), false},
		"a pod not yet started": {set(0, 2, 0), pod(corev1.PodPending, false), false},
	} {
		if got := isEmptied(c.set, c.pods); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
