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

func podOn(set *appsv1.DaemonSet, node, hash string, ready corev1.ConditionStatus) *corev1.Pod {
	pod := newPod(set, node, hash)
	pod.Name, pod.UID = "p-"+node, types.UID("p-"+node)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return pod
}

// Proves S19.
func TestEveryNodeThatFitsGetsOnePod(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	dedicated := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	gone := corev1.Taint{Key: "gone", Effect: corev1.TaintEffectNoExecute}
	pressed := corev1.Taint{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule}
	nodes := []*corev1.Node{
		node("a"),
		node("b"),
		node("c", dedicated),
		node("d", dedicated),
		node("e", gone),
		node("f", pressed),
	}
	pods := []*corev1.Pod{
		podOn(set, "a", "h", "True"),
		podOn(set, "d", "h", "True"),
		podOn(set, "e", "h", "True"),
		podOn(set, "lost", "h", "True"),
	}
	unseen := podOn(set, "unseen", "h", "True") // it runs on a node that only other components know
	unseen.Spec.NodeName = "unseen"
	pods = append(pods, unseen)
	got := Plan(set, NewPlacements(set, nodes, pods), "h", time.Unix(1000, 0), nil)
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

// A pod that has ended is not restarted on its node, so it is deleted and created again.
func TestEndedPodsAreReplaced(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		phase  corev1.PodPhase
		wait   time.Duration // remaining delay of the node because of earlier failures
		delete int
		again  time.Duration
	}{
		"it runs":                           {corev1.PodRunning, 0, 0, 0},
		"it failed":                         {corev1.PodFailed, 0, 1, 0},
		"it failed, as one did before it":   {corev1.PodFailed, 3 * time.Second, 0, 3 * time.Second},
		"it succeeded":                      {corev1.PodSucceeded, 0, 1, 0},
		"it succeeded, as one failed there": {corev1.PodSucceeded, 3 * time.Second, 1, 0},
		"nobody knows what it is":           {corev1.PodUnknown, 0, 0, 0},
	} {
		p := podOn(set, "a", "h", "True")
		p.Status.Phase = c.phase
		got := Plan(set, NewPlacements(set, []*corev1.Node{node("a")}, []*corev1.Pod{p}), "h", now,
			map[string]time.Duration{"a": c.wait})
		if len(got.Create) != 0 || len(got.Delete) != c.delete || len(got.Ended) != c.delete ||
			got.RequeueAfter != c.again {
			t.Errorf("%s: %+v", name, got)
		}
	}
	early, late := podOn(set, "a", "h", "True"), podOn(set, "b", "h", "True")
	early.Status.Phase, late.Status.Phase = corev1.PodFailed, corev1.PodFailed
	wait := map[string]time.Duration{"a": time.Second, "b": 4 * time.Second}
	if got := Plan(set, NewPlacements(set, []*corev1.Node{node("a"), node("b")}, []*corev1.Pod{early, late}), "h", now,
		wait); got.RequeueAfter != time.Second {
		t.Errorf("of two that wait, it is looked again after %s", got.RequeueAfter)
	}
}

// Proves S19.
func TestAnUpdateReplacesOnePodAtATime(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	nodes := []*corev1.Node{node("a"), node("b"), node("c")}
	pods := []*corev1.Pod{podOn(set, "a", "old", "True"), podOn(set, "b", "old", "True"),
		podOn(set, "c", "old", "True")}
	if got := Plan(set, NewPlacements(set, nodes, pods), "new", time.Now(), nil); len(got.Delete) != 1 {
		t.Errorf("deletes %d at once", len(got.Delete))
	}
	pods[0] = podOn(set, "a", "new", "False")
	if got := Plan(set, NewPlacements(set, nodes, pods), "new", time.Now(), nil); len(got.Delete) != 0 {
		t.Errorf("goes on while the new pod is not ready")
	}
	pods[1] = podOn(set, "b", "old", "False")
	if got := Plan(set, NewPlacements(set, nodes, pods), "new", time.Now(), nil); len(got.Delete) != 1 ||
		got.Delete[0].Name != "p-b" {
		t.Errorf("a broken old pod is not replaced at once: %v", got.Delete)
	}
}

// With a surge, the replacement becomes available before the old pod is deleted.
// Proves S19.
func TestASurgeStartsTheReplacementFirst(t *testing.T) {
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &one, MaxUnavailable: &none}}
	nodes := []*corev1.Node{node("a"), node("b")}
	oldA, oldB := podOn(set, "a", "old", "True"), podOn(set, "b", "old", "True")
	fresh := func(ready corev1.ConditionStatus) *corev1.Pod {
		pod := podOn(set, "a", "new", ready)
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
		{"a broken old one goes at once", []*corev1.Pod{podOn(set, "a", "old", "False"), oldB}, "[b]", "[p-a]"},
	} {
		got := Plan(set, NewPlacements(set, nodes, c.pods), "new", time.Now(), nil)
		deleted := []string{}
		for _, pod := range got.Delete {
			deleted = append(deleted, pod.Name)
		}
		if fmt.Sprint(got.Create) != c.create || fmt.Sprint(deleted) != c.delete {
			t.Errorf("%s: creates %v, deletes %v; want %s, %s", c.name, got.Create, deleted, c.create, c.delete)
		}
	}
}

func TestStatusCounts(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: 6}}
	set.Spec.MinReadySeconds = 10
	now := time.Unix(1_000_000, 0)
	dedicated := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	nodes := []*corev1.Node{
		node("available"),
		node("ready"),
		node("unready"),
		node("outdated"),
		node("without"),
		node("elsewhere", dedicated),
	}
	at := func(p *corev1.Pod, ago time.Duration) *corev1.Pod {
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-ago))
		return p
	}
	pods := []*corev1.Pod{
		at(podOn(set, "available", "h", "True"), time.Minute),
		at(podOn(set, "ready", "h", "True"), time.Second),
		at(podOn(set, "unready", "h", "False"), time.Minute),
		at(podOn(set, "outdated", "old", "True"), time.Minute),
		at(podOn(set, "elsewhere", "h", "True"), time.Minute),
	}
	s := Status(set, NewPlacements(set, nodes, pods), "h", now)
	got := fmt.Sprint(s.ObservedGeneration, s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberMisscheduled,
		s.NumberReady, s.NumberAvailable, s.NumberUnavailable, s.UpdatedNumberScheduled)
	if want := "6 5 4 1 3 2 3 3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestReplacementLimits(t *testing.T) {
	for _, c := range []struct {
		unavailable, surge    string
		wanted                int
		unavailablePods, more int
	}{
		{"", "", 10, 1, 0}, {"3", "0", 10, 3, 0}, {"25%", "0", 10, 3, 0}, {"1%", "0", 10, 1, 0}, {"100%", "0", 4, 4, 0},
		{"0", "1", 10, 1, 1}, {"0", "25%", 10, 1, 3}, {"0", "1%", 10, 1, 1},
	} {
		set := &appsv1.DaemonSet{}
		set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		if c.unavailable != "" {
			u, s := intstr.Parse(c.unavailable), intstr.Parse(c.surge)
			set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &u, MaxSurge: &s}
		}
		if unavailablePods, more := maxUnavailable(set, c.wanted),
			maxSurge(set, c.wanted); unavailablePods != c.unavailablePods || more != c.more {
			t.Errorf("%q and %q of %d: %d and %d", c.unavailable, c.surge, c.wanted, unavailablePods, more)
		}
		set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		if more := maxSurge(set, c.wanted); more != 0 {
			t.Errorf("by hand there are %d more", more)
		}
	}
}

// Problems of a node do not evict a pod that belongs to that node.
func TestPodsTolerateTheirNodesTaints(t *testing.T) {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "d",
			Annotations: map[string]string{"deprecated.daemonset.template.generation": "3"},
		},
	}
	for _, host := range []bool{false, true} {
		set.Spec.Template.Spec.HostNetwork = host
		var got []string
		pod := newPod(set, "a", "h")
		for _, tol := range pod.Spec.Tolerations {
			if tol.Operator != corev1.TolerationOpExists || tol.TolerationSeconds != nil {
				t.Errorf("it tolerates %+v", tol)
			}
			got = append(got, tol.Key[len("node.kubernetes.io/"):]+":"+string(tol.Effect))
		}
		want := []string{
			"not-ready:NoExecute",
			"unreachable:NoExecute",
			"disk-pressure:NoSchedule",
			"memory-pressure:NoSchedule",
			"pid-pressure:NoSchedule",
			"unschedulable:NoSchedule",
		}
		if host {
			want = append(want, "network-unavailable:NoSchedule")
		}
		if !slices.Equal(got, want) {
			t.Errorf("host network %t: it tolerates %q", host, got)
		}
		if pod.Labels["controller-revision-hash"] != "h" || pod.Labels["pod-template-generation"] != "3" {
			t.Errorf("its labels are %v", pod.Labels)
		}
	}
}
