package disruption

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func pod(name string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
}

// Proves S14.
func TestBudgetsAllowTheExcessOfHealthyPods(t *testing.T) {
	now := time.Unix(10_000, 0)
	three := []*corev1.Pod{pod("a", "True"), pod("b", "True"), pod("c", "False")}
	deletedAt := metav1.NewTime(now)
	leaving := pod("d", "True")
	leaving.DeletionTimestamp = &deletedAt
	for _, c := range []struct {
		name      string
		min, max  string
		pods      []*corev1.Pod
		expected  int
		disrupted map[string]metav1.Time
		want      string // "healthy/desired allowed"
	}{
		{"a minimum", "1", "", three, 3, nil, "2/1 1"},
		{"more than there are", "5", "", three, 3, nil, "2/5 0"},
		{"a share, rounded up", "50%", "", three, 3, nil, "2/2 0"},
		{"more are wanted than a number can be", "", "1%", three, 3 * math.MaxInt32, nil, "2/2147483647 0"},
		{"a maximum", "", "2", three, 3, nil, "2/1 1"},
		{"a share that may go, rounded up", "", "40%", three, 3, nil, "2/1 1"},
		{"more may go than there are", "", "9", three, 3, nil, "2/0 2"},
		{"none are expected", "0", "", nil, 0, nil, "0/0 0"},
		{"a pod that is deleted is not healthy", "1", "", append(three, leaving), 4, nil, "2/1 1"},
		{"nor is one that was just evicted", "0", "", three, 3,
			map[string]metav1.Time{"a": metav1.NewTime(now.Add(-time.Minute))}, "1/0 1"},
		{"an eviction that came to nothing", "0", "", three, 3,
			map[string]metav1.Time{"a": metav1.NewTime(now.Add(-3 * time.Minute))}, "2/0 2"},
	} {
		b := &policyv1.PodDisruptionBudget{}
		b.Generation, b.Status.DisruptedPods = 7, c.disrupted
		if c.min != "" {
			v := intstr.Parse(c.min)
			b.Spec.MinAvailable = &v
		}
		if c.max != "" {
			v := intstr.Parse(c.max)
			b.Spec.MaxUnavailable = &v
		}
		s, _, err := Status(b, c.pods, c.expected, now)
		if got := fmt.Sprintf("%d/%d %d", s.CurrentHealthy, s.DesiredHealthy, s.DisruptionsAllowed); err != nil ||
			got != c.want ||
			s.ObservedGeneration != 7 {
			t.Errorf("%s: %s (%v), want %s", c.name, got, err, c.want)
		}
	}
}

// Proves S14.
func TestEvictionsAreRecheckedAfterTheirTimeout(t *testing.T) {
	now := time.Unix(10_000, 0)
	b := &policyv1.PodDisruptionBudget{}
	b.Status.DisruptedPods = map[string]metav1.Time{
		"a":      metav1.NewTime(now.Add(-time.Minute)),
		"nobody": metav1.NewTime(now),
	}
	s, again, err := Status(b, []*corev1.Pod{pod("a", "True")}, 1, now)
	if err != nil || again != time.Minute || len(s.DisruptedPods) != 1 {
		t.Errorf("again after %s with %v (%v)", again, s.DisruptedPods, err)
	}
}
