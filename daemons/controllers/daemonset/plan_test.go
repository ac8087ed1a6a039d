package daemonset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func node(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
}

func on(set *appsv1.DaemonSet, node, hash string, ready corev1.ConditionStatus) *corev1.Pod {
	pod := newPod(set, node, hash)
	pod.Name, pod.UID = "p-"+node, types.UID("p-"+node)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return pod
}

func TestEveryNodeThatFitsGetsOnePod(t *testing.T) { // S19
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	dedicated := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	gone := corev1.Taint{Key: "gone", Effect: corev1.TaintEffectNoExecute}
	pressed := corev1.Taint{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule}
	nodes := []*corev1.Node{node("a"), node("b"), node("c", dedicated), node("d", dedicated), node("e", gone), node("f", pressed)}
	pods := []*corev1.Pod{on(set, "a", "h", "True"), on(set, "d", "h", "True"), on(set, "e", "h", "True"), on(set, "lost", "h", "True")}
	unseen := on(set, "unseen", "h", "True") // it runs there, and its node is known to others
	unseen.Spec.NodeName = "unseen"
	pods = append(pods, unseen)
	got := Plan(set, Survey(set, nodes, pods), "h", time.Unix(1000, 0))
	slices.Sort(got.Create)
	if fmt.Sprint(got.Create) != "[b f]" {
		t.Errorf("creates on %v, want b and f (d keeps what it has, c gets none)", got.Create)
	}
	var deleted []string
	for _, pod := range got.Delete {
		deleted = append(deleted, pod.Name)
	}
	slices.Sort(deleted)
	if fmt.Sprint(deleted) != "[p-e p-lost]" {
		t.Errorf("deletes %v", deleted)
	}
}

func TestAnUpdateReplacesOnePodAtATime(t *testing.T) { // S19
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	nodes := []*corev1.Node{node("a"), node("b"), node("c")}
	pods := []*corev1.Pod{on(set, "a", "old", "True"), on(set, "b", "old", "True"), on(set, "c", "old", "True")}
	if got := Plan(set, Survey(set, nodes, pods), "new", time.Now()); len(got.Delete) != 1 {
		t.Errorf("deletes %d at once", len(got.Delete))
	}
	pods[0] = on(set, "a", "new", "False")
	if got := Plan(set, Survey(set, nodes, pods), "new", time.Now()); len(got.Delete) != 0 {
		t.Errorf("goes on while the new pod is not ready")
	}
	pods[1] = on(set, "b", "old", "False")
	if got := Plan(set, Survey(set, nodes, pods), "new", time.Now()); len(got.Delete) != 1 || got.Delete[0].Name != "p-b" {
		t.Errorf("a broken old pod is not replaced at once: %v", got.Delete)
	}
}

// With a surge, the replacement works before the old pod goes.
func TestASurgeStartsTheReplacementFirst(t *testing.T) { // S19
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &one, MaxUnavailable: &none}}
	nodes := []*corev1.Node{node("a"), node("b")}
	oldA, oldB := on(set, "a", "old", "True"), on(set, "b", "old", "True")
	fresh := func(ready corev1.ConditionStatus) *corev1.Pod {
		pod := on(set, "a", "new", ready)
		pod.Name, pod.UID = "new-a", "new-a"
		return pod
	}
	for _, c := range []struct {
		name           string
		pods           []*corev1.Pod
		create, delete string
	}{
		{"one replacement at a time", []*corev1.Pod{oldA, oldB}, "[a]", "[]"},
		{"wait for it", []*corev1.Pod{oldA, fresh("False"), oldB}, "[]", "[]"},
		{"it works: the old one goes, the next may start", []*corev1.Pod{oldA, fresh("True"), oldB}, "[b]", "[p-a]"},
		{"a broken old one goes at once", []*corev1.Pod{on(set, "a", "old", "False"), oldB}, "[b]", "[p-a]"},
	} {
		got := Plan(set, Survey(set, nodes, c.pods), "new", time.Now())
		deleted := []string{}
		for _, pod := range got.Delete {
			deleted = append(deleted, pod.Name)
		}
		if fmt.Sprint(got.Create) != c.create || fmt.Sprint(deleted) != c.delete {
			t.Errorf("%s: creates %v, deletes %v; want %s, %s", c.name, got.Create, deleted, c.create, c.delete)
		}
	}
}
