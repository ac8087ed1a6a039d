package daemonset

import (
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func largeSet(n int) (*appsv1.DaemonSet, []*corev1.Node, []*corev1.Pod) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	nodes, pods := make([]*corev1.Node, n), make([]*corev1.Pod, n)
	for i := range n {
		nodes[i] = node("n" + strconv.Itoa(i))
		pods[i] = podOn(set, nodes[i].Name, "h", "True")
	}
	return set, nodes, pods
}

// BenchmarkSync measures the sync of a set that has a pod on every node.
func BenchmarkSync(b *testing.B) {
	for _, n := range []int{500, 5_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			set, nodes, pods := largeSet(n)
			now := time.Unix(1000, 0)
			for b.Loop() {
				at := NewPlacements(set, nodes, pods)
				if a, s := Plan(set, at, "h", now, nil), Status(set, at, "h", now); len(a.Create)+len(a.Delete) > 0 ||
					int(s.NumberReady) != n {
					b.Fatal(a, s)
				}
			}
		})
	}
}

// The cost of a sync grows with the number of nodes plus pods, not with their product.
// Proves S19.
func TestSyncCostGrowsLinearly(t *testing.T) {
	cost := func(n int) float64 {
		set, nodes, pods := largeSet(n)
		return testing.AllocsPerRun(3, func() {
			at := NewPlacements(set, nodes, pods)
			Plan(set, at, "h", time.Unix(1000, 0), nil)
			Status(set, at, "h", time.Unix(1000, 0))
		})
	}
	if few, many := cost(100), cost(1_000); many > 15*few {
		t.Errorf("100 nodes cost %.0f allocations, 1,000 cost %.0f", few, many)
	}
}

// Proves S19.
func TestStatusCountsEachNodeOnce(t *testing.T) {
	set, nodes, pods := largeSet(3)
	nodes = append(nodes, node("bare"), node("tainted", corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}))
	pods = append(pods, podOn(set, "n0", "old", "True"), podOn(set, "tainted", "h", "True"),
		podOn(set, "unknown", "h", "True"))
	pods[1] = podOn(set, "n1", "old", "False")
	s := Status(set, NewPlacements(set, nodes, pods), "h", time.Unix(1000, 0))
	want := appsv1.DaemonSetStatus{
		DesiredNumberScheduled: 4,
		CurrentNumberScheduled: 3,
		NumberMisscheduled:     1,
		NumberReady:            2,
		NumberAvailable:        2,
		NumberUnavailable:      2,
		UpdatedNumberScheduled: 2,
	}
	if s.String() != want.String() {
		t.Errorf("it is %v, want %v", s, want)
	}
}
