package loop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Each pair differs by one rule. All earlier rules are equal for both, and all later rules favour the other pod.
func TestDeletionOrder(t *testing.T) {
	now := time.Unix(2_000_000, 0)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	newPod := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:              name,
				UID:               types.UID(name),
				CreationTimestamp: ago(100 * time.Hour),
				Annotations:       map[string]string{},
			},
			Spec: corev1.PodSpec{NodeName: "n"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(100 * time.Hour)},
				}},
		}
		for _, c := range change {
			c(pod)
		}
		return pod
	}
	onNode := func(n string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = n } }
	phase := func(s corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = s } }
	ready := func(s corev1.ConditionStatus, since metav1.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = s, since
		}
	}
	cost := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations["controller.kubernetes.io/pod-deletion-cost"] = text }
	}
	made := func(at metav1.Time) func(*corev1.Pod) { return func(p *corev1.Pod) { p.CreationTimestamp = at } }
	restarted := func(n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
	}
	for _, c := range []struct {
		rule        string
		first, then *corev1.Pod
	}{
		{"without a node", newPod("z", onNode(""), phase(corev1.PodRunning)), newPod("a", phase(corev1.PodPending))},
		{"pending before unknown", newPod("z", phase(corev1.PodPending)),
			newPod("a", phase(corev1.PodUnknown), ready("False", ago(1)))},
		{"unknown before running", newPod("z", phase(corev1.PodUnknown)), newPod("a", ready("False", ago(1)))},
		{"not ready", newPod("z", ready("False", ago(time.Hour)), cost("100")), newPod("a", cost("1"))},
		{"lower cost", newPod("z", cost("-1")), newPod("a", cost("0"), onNode("crowded"))},
		{"a cost that is no number is none", newPod("z", cost("-1")), newPod("a", cost("cheap"))},
		{"on a crowded node", newPod("z", onNode("crowded")), newPod("a", ready("True", ago(time.Second)))},
		{"ready for shorter, by an order of magnitude", newPod("z", ready("True", ago(time.Hour))),
			newPod("a", restarted(9))},
		{"ready since nobody knows when", newPod("z", ready("True", metav1.Time{})), newPod("a", restarted(9))},
		{"ready for about as long: any, by its UID", newPod("a", ready("True", ago(90*time.Hour))),
			newPod("z", ready("True", ago(80*time.Hour)), restarted(9))},
		{"more restarts", newPod("z", restarted(2)), newPod("a", restarted(1), made(ago(time.Second)))},
		{"younger, by an order of magnitude", newPod("z", made(ago(time.Hour))), newPod("a")},
		{"of about one age: any, by its UID", newPod("a", made(ago(90*time.Hour))),
			newPod("z", made(ago(80*time.Hour)))},
	} {
		for _, pods := range [][]*corev1.Pod{{c.first, c.then}, {c.then, c.first}} {
			DeletionOrder(pods, map[string]int{"n": 1, "crowded": 2}, now)
			if pods[0] != c.first {
				t.Errorf("%s: %s goes first", c.rule, pods[0].Name)
			}
		}
	}
}

func TestAvailability(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		status   corev1.ConditionStatus
		since    time.Time
		minReady time.Duration
		want     bool
	}{
		"ready":                     {corev1.ConditionTrue, now, 0, true},
		"not ready":                 {corev1.ConditionFalse, now.Add(-time.Hour), 0, false},
		"not for long enough":       {corev1.ConditionTrue, now.Add(-9 * time.Second), 10 * time.Second, false},
		"for long enough":           {corev1.ConditionTrue, now.Add(-10 * time.Second), 10 * time.Second, true},
		"since nobody knows when":   {corev1.ConditionTrue, time.Time{}, 10 * time.Second, false},
		"nothing is said about it":  {"", time.Time{}, 0, false},
		"since then, and must be 0": {corev1.ConditionTrue, time.Time{}, 0, true},
	} {
		pod := &corev1.Pod{}
		if c.status != "" {
			pod.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: c.status, LastTransitionTime: metav1.NewTime(c.since)},
			}
		}
		if got := IsAvailable(pod, c.minReady, now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestBatchesDouble(t *testing.T) {
	for _, c := range []struct {
		n, failsFrom, calls int
	}{{10, 99, 10}, {10, 0, 1}, {10, 2, 3}, {10, 3, 7}, {0, 0, 0}} {
		calls := make(chan int, c.n)
		done, err := InBatches(t.Context(), c.n, func() bool { return true }, func(_ context.Context, i int) error {
			calls <- i
			if i >= c.failsFrom {
				return fmt.Errorf("%d", i)
			}
			return nil
		})
		close(calls)
		var seen []int
		for i := range calls {
			seen = append(seen, i)
		}
		slices.Sort(seen)
		if done != c.calls || len(seen) != c.calls || (err != nil) != (c.calls > c.failsFrom) {
			t.Errorf("of %d, failing from %d: %d calls %v, %v", c.n, c.failsFrom, done, seen, err)
		}
	}
}

func TestBatchesEndWhenTheSpecChanges(t *testing.T) {
	for wanted, calls := range []int{0, 1, 3, 7} {
		requests := 0
		done, err := InBatches(t.Context(), 100, func() bool { requests++; return requests <= wanted },
			func(context.Context, int) error { return nil })
		if done != calls || err != nil {
			t.Errorf("after %d batches %d calls were made, %v; want %d", wanted, done, err, calls)
		}
	}
}

func TestUntilAvailable(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	pod := func(status corev1.ConditionStatus, ago time.Duration) *corev1.Pod {
		return &corev1.Pod{
			Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago))},
				},
			},
		}
	}
	for name, c := range map[string]struct {
		pods     []*corev1.Pod
		minReady time.Duration
		want     time.Duration
	}{
		"none":                 {nil, time.Minute, 0},
		"no time is asked for": {[]*corev1.Pod{pod("True", 0)}, 0, 0},
		"not ready":            {[]*corev1.Pod{pod("False", time.Second)}, time.Minute, 0},
		"available":            {[]*corev1.Pod{pod("True", time.Minute)}, time.Minute, 0},
		"what is left of it":   {[]*corev1.Pod{pod("True", 50*time.Second)}, time.Minute, 10 * time.Second},
		"the first of all of it": {[]*corev1.Pod{pod("True", 10*time.Second), pod("True", 50*time.Second),
			pod("True", time.Hour), pod("True", 20*time.Second)}, time.Minute, 10 * time.Second},
	} {
		if got := UntilAvailable(c.pods, c.minReady, now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
