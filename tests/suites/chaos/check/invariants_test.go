package check

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newTestWorld returns a node with a pod of an owner, without violations.
func newTestWorld() World {
	made := metav1.NewTime(testTime)
	meta := metav1.ObjectMeta{
		Name:              "p",
		Namespace:         "d",
		UID:               "u",
		CreationTimestamp: made,
		OwnerReferences:   []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "o"}},
	}
	return World{At: testTime,
		Pods: []corev1.Pod{{ObjectMeta: meta,
			Spec: corev1.PodSpec{
				NodeName: "n1",
				Containers: []corev1.Container{
					{
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
						},
					},
				},
			},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}}}}},
		Nodes: []corev1.Node{
			{
				ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			},
		},
		Owners:     map[string]metav1.Time{"o": made},
		Dependents: []metav1.ObjectMeta{meta},
		Running:    map[string]map[string][]string{"n1": {"u": {"c1"}}},
		Trusted:    map[string]bool{"n1": true, "n2": true},
	}
}

func TestBrokenInvariantsAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		change       func(*World)
		first, later int // number of findings at once, and after the settling time
	}{
		"as it should be": {func(*World) {}, 0, 0},
		"a pod on two nodes": {func(w *World) {
			w.Trusted["n2"] = false
			w.Running["n2"] = map[string][]string{"u": {"c2"}}
		}, 1, 0},
		"a pod on another node": {func(w *World) {
			w.Running = map[string]map[string][]string{"n2": {"u": {
				"c2"}}}
		}, 1, 0},
		"a container without a pod": {func(w *World) { w.Running["n1"]["v"] = []string{"c3"} }, 0, 1},
		"the same on a lost machine": {func(w *World) {
			w.Running["n1"]["v"] = []string{
				"c3"}
			w.Trusted["n1"] = false
		}, 0, 0},
		"more requested than there is": {func(w *World) {
			w.Nodes[0].Status.Allocatable["cpu"] = resource.MustParse("900m")
		}, 1, 0},
		"an owner that is gone": {func(w *World) { w.Owners = nil }, 0, 1},
		"a dependent before its owner": {func(w *World) { w.Owners["o"] = metav1.NewTime(testTime.Add(time.Second)) },
			1,
			0},
	} {
		t.Run(name, func(t *testing.T) {
			w, i := newTestWorld(), Invariants{Settling: time.Minute}
			test.change(&w)
			if findings := i.Check(w); len(findings) != test.first {
				t.Errorf("at once: %v", findings)
			}
			w.At = w.At.Add(2 * time.Minute)
			if findings := i.Check(w); len(findings) != test.later {
				t.Errorf("after the settling time: %v", findings)
			}
		})
	}
}

func TestTransientViolationsAreNoFindings(t *testing.T) {
	i := Invariants{Settling: time.Minute}
	bad, good := newTestWorld(), newTestWorld()
	bad.Running["n1"]["v"] = []string{"c"}
	for n := range 10 {
		w := bad
		if n%2 == 1 {
			w = good
		}
		w.At = testTime.Add(time.Duration(n) * 40 * time.Second)
		if findings := i.Check(w); len(findings) > 0 {
			t.Fatal(findings)
		}
	}
}

func TestRestartsOnMachinesWithoutFaultsAreFound(t *testing.T) {
	for trusted, want := range map[bool]int{true: 1, false: 0} {
		i := Invariants{}
		i.Check(newTestWorld())
		w := newTestWorld()
		w.Trusted["n1"] = trusted
		w.Pods[0].Status.ContainerStatuses[0].RestartCount = 1
		if findings := i.Check(w); len(findings) != want {
			t.Errorf("trusted is %v: %v", trusted, findings)
		}
	}
}
