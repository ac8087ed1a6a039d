package check

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Too many and too few pods are found at the event that causes them, and a correct order of the same events passes.
func TestRolloutFindsTooManyAndTooFewPods(t *testing.T) {
	type event struct {
		uid            string
		ready, leaving bool
		deleted        bool
	}
	for name, c := range map[string]struct {
		events []event
		wrong  int
	}{
		"replaced one by one": {[]event{{uid: "a", ready: true}, {uid: "b"}, {uid: "b", ready: true},
			{uid: "a", leaving: true}, {uid: "a", deleted: true}}, 0},
		"not ready yet at first": {[]event{{uid: "a"}, {uid: "a", ready: true}}, 0},
		"one more than surge":    {[]event{{uid: "a", ready: true}, {uid: "b"}, {uid: "c"}}, 1},
		"ending ones do not count": {[]event{{uid: "a", ready: true}, {uid: "b", ready: true},
			{uid: "a", leaving: true}, {uid: "c"}}, 0},
		"the old one went too soon": {[]event{{uid: "a", ready: true}, {uid: "b"},
			{uid: "a", ready: true, leaving: true}}, 1},
		"not ready any more": {[]event{{uid: "a", ready: true}, {uid: "a"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := Rollout{MaxPods: 2, MinReady: 1}
			wrong := 0
			for _, e := range c.events {
				p := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{UID: types.UID(e.uid), Labels: map[string]string{"rollout": "d"}},
				}
				if e.ready {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				}
				if e.leaving {
					p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				}
				wrong += len(r.Apply(p, e.deleted))
			}
			if wrong != c.wrong {
				t.Errorf("%d findings, want %d", wrong, c.wrong)
			}
		})
	}
}
