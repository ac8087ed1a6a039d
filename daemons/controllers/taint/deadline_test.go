package taint

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// Proves S04.
func TestPodsAreEvictedWhenTheirTolerationExpires(t *testing.T) {
	added := time.Unix(1000, 0)
	unreachable := corev1.Taint{
		Key:       corev1.TaintNodeUnreachable,
		Effect:    corev1.TaintEffectNoExecute,
		TimeAdded: ptr.To(metav1.NewTime(added)),
	}
	tolerate := func(seconds *int64) corev1.Toleration {
		return corev1.Toleration{
			Key:               corev1.TaintNodeUnreachable,
			Operator:          corev1.TolerationOpExists,
			Effect:            corev1.TaintEffectNoExecute,
			TolerationSeconds: seconds,
		}
	}
	for _, c := range []struct {
		name        string
		tolerations []corev1.Toleration
		taints      []corev1.Taint
		at          time.Time
		evict       bool
	}{
		{"no taint", nil, nil, time.Time{}, false},
		{"not tolerated: at once", nil, []corev1.Taint{unreachable}, time.Time{}, true},
		{"tolerated for good", []corev1.Toleration{tolerate(nil)}, []corev1.Taint{unreachable}, time.Time{}, false},
		{"tolerated for a while", []corev1.Toleration{tolerate(ptr.To[int64](300))}, []corev1.Taint{unreachable},
			added.Add(300 * time.Second), true},
		{"the shortest counts",
			[]corev1.Toleration{tolerate(ptr.To[int64](300)), tolerate(nil), tolerate(ptr.To[int64](5))},
			[]corev1.Taint{unreachable}, added.Add(5 * time.Second), true},
		{"longer than a duration can be", []corev1.Toleration{tolerate(ptr.To[int64](math.MaxInt64))},
			[]corev1.Taint{unreachable},
			added.Add(100 * 366 * 24 * time.Hour), true},
		{"zero is at once", []corev1.Toleration{tolerate(ptr.To[int64](0))}, []corev1.Taint{unreachable}, added, true},
		{"a key of one's own", []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			[]corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}, time.Time{}, false},
		{"another value", []corev1.Toleration{{Key: "x", Value: "a"}},
			[]corev1.Taint{{Key: "x", Value: "b", Effect: corev1.TaintEffectNoExecute}}, time.Time{}, true},
	} {
		at, evict := Deadline(&corev1.Pod{Spec: corev1.PodSpec{Tolerations: c.tolerations}}, c.taints, time.Time{})
		if evict != c.evict || !at.Equal(c.at) {
			t.Errorf("%s: %v %v, want %v %v", c.name, at, evict, c.at, c.evict)
		}
	}
}

// kubectl taint sets no time, so the toleration period starts when the taint is first seen.
// Proves S04.
func TestTaintsWithoutATimeCountFromWhenTheyAreSeen(t *testing.T) {
	taint := corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{
				{Key: "maintenance", Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To[int64](300)},
			},
		},
	}
	node := func(taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	now := clocktesting.NewFakeClock(time.Unix(1000, 0))
	c := &controller{Context: loop.Context{Clock: now}}
	for _, step := range []struct {
		at, want time.Time
	}{{time.Unix(1000, 0), time.Unix(1300, 0)}, {time.Unix(1200, 0), time.Unix(1300, 0)}} {
		now.SetTime(step.at)
		if at, evict := Deadline(pod, c.datedTaints(node(taint)), time.Time{}); !evict || !at.Equal(step.want) {
			t.Errorf("at %v it is to go at %v (%v), want %v", step.at, at, evict, step.want)
		}
	}
	c.datedTaints(node())
	now.SetTime(time.Unix(2000, 0))
	if at, _ := Deadline(pod, c.datedTaints(node(taint)), time.Time{}); !at.Equal(time.Unix(2300, 0)) {
		t.Errorf("for a taint that was added again: %v", at)
	}
}

// A pod that comes to a node with an old taint has its full toleration period. Otherwise its controller would create
// pods without end.
func TestLaterPodsGetTheirFullToleration(t *testing.T) {
	added := time.Unix(1_000_000, 0)
	old := corev1.Taint{
		Key:       "maintenance",
		Effect:    corev1.TaintEffectNoExecute,
		TimeAdded: ptr.To(metav1.NewTime(added)),
	}
	for name, c := range map[string]struct {
		started  *metav1.Time
		steps    []time.Duration // times after the pod came; existing reports whether it still exists
		existing []bool
	}{
		"by its kubelet's word": {ptr.To(metav1.NewTime(added.Add(time.Hour))),
			[]time.Duration{0, 299 * time.Second, 300 * time.Second}, []bool{true, true, false}},
		"before its kubelet says so": {nil, []time.Duration{0, 299 * time.Second, 300 * time.Second},
			[]bool{true, true, false}},
		"it was there before the taint": {ptr.To(metav1.NewTime(added.Add(-time.Hour))), []time.Duration{0},
			[]bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace:         "n",
					Name:              "p",
					UID:               "p",
					CreationTimestamp: metav1.NewTime(added),
				},
				Status: corev1.PodStatus{StartTime: c.started},
				Spec: corev1.PodSpec{
					NodeName: "n",
					Tolerations: []corev1.Toleration{
						{
							Key:               "maintenance",
							Operator:          corev1.TolerationOpExists,
							TolerationSeconds: ptr.To[int64](300),
						},
					},
				},
			}
			client, clock := fake.NewClientset(pod), clocktesting.NewFakeClock(added.Add(time.Hour))
			factory := informers.New(client)
			made, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler),
				Events: record.NewFakeRecorder(10), Clock: clock,
				Config: config.DefaultControllerManager()}).(*controller)
			if !ok {
				t.Fatal("it is no controller of taints")
			}
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n"},
				Spec:       corev1.NodeSpec{Taints: []corev1.Taint{old}},
			}
			if err := errors.Join(informers.Nodes(factory).Informer().GetIndexer().Add(node),
				informers.Pods(factory).Informer().GetIndexer().Add(pod)); err != nil {
				t.Fatal(err)
			}
			for i, after := range c.steps {
				clock.SetTime(added.Add(time.Hour + after))
				if err := made.sync(t.Context(), "n/p"); err != nil {
					t.Fatal(err)
				}
				_, err := client.CoreV1().Pods("n").Get(t.Context(), "p", metav1.GetOptions{})
				if (err == nil) != c.existing[i] {
					t.Errorf("after %s: %v", after, err)
				}
			}
		})
	}
}
