package scheduler

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/scheduler/cluster"
)

func (s *scheduler) sees(objects ...any) {
	for _, obj := range objects {
		switch o := obj.(type) {
		case *corev1.Node:
			s.nodeSeen(cluster.NewNode(o))
		case *corev1.Pod:
			s.podSeen(seen(o))
		default:
			s.storageSeen(context.Background())(o, "")
		}
	}
}

// refuses schedules the next pod, and fails the test unless it is refused.
func (s *scheduler) refuses(t *testing.T, name string) {
	t.Helper()
	it, ok := s.queue.pop()
	if !ok || it.pod.Name != name {
		t.Fatalf("the next pod is %+v, want %s", it, name)
	}
	s.schedule(context.Background(), it)
	if it.pos < 0 || it.class.at != inParked {
		t.Fatalf("%s was not refused", name)
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func claimed(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "c"}}
}

// The test covers which events activate a refused pod, and which do not.
func TestEventsWakeWhomTheyMayHelp(t *testing.T) {
	web := labelled("app", "a")
	honors := func(p *corev1.Pod) {
		spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)(p)
		honor := corev1.NodeInclusionPolicyHonor
		p.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy = &honor
	}
	port := func(n int32) func(*corev1.Pod) { return hostPort(n) }
	once := func(p *corev1.Pod) { p.Spec.Volumes = nil; uses("once")(p) }
	oncePod := claimed("once")
	oncePod.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	oncePod.Spec.VolumeName, oncePod.Annotations = "v", map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	for name, c := range map[string]struct {
		given []any
		pod   *corev1.Pod
		event func(s *scheduler)
		wakes bool
	}{
		"a domain does not count any more, and its node would not do itself": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", on("n1"), web)},
			pod("p", web, honors),
			func(s *scheduler) { s.sees(node("n2", zone("b"), cordoned, tainted("NoSchedule"))) }, true},
		"a node takes what the pod shuns to another domain": {
			[]any{node("n1", zone("a")), node("n2", zone("a"), cordoned), pod("x", on("n2"), web)},
			pod("p", near(true, corev1.LabelTopologyZone, "a")),
			func(s *scheduler) { s.sees(node("n2", zone("b"), cordoned)) }, true},
		"a taint, for a pod that shuns": {
			[]any{node("n1", zone("a")), node("n2", zone("a"), cordoned), pod("x", on("n2"), web)},
			pod("p", near(true, corev1.LabelTopologyZone, "a")),
			func(s *scheduler) { s.sees(node("n2", zone("a"), cordoned, tainted("NoSchedule"))) }, false},
		"a node takes a pod that shuns to another domain": {
			[]any{node("n1", zone("a")), node("n2", zone("a"), cordoned),
				pod("x", on("n2"), near(true, corev1.LabelTopologyZone, "a"))}, pod("p", web),
			func(s *scheduler) { s.sees(node("n2", zone("b"), cordoned)) }, true},
		"a taint, for a pod whose constraints do not look at taints": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", on("n1"), web)},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)),
			func(s *scheduler) { s.sees(node("n2", zone("b"), cordoned, tainted("NoSchedule"))) }, false},
		"a label that is no topology": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", on("n1"), web)},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)),
			func(s *scheduler) {
				s.sees(node("n2", zone("b"), cordoned, func(n *corev1.Node) { n.Labels["x"] = "y" }))
			}, false},
		"a node with what the pod shuns goes": {
			[]any{node("n1", zone("a")), node("n2", zone("a"), cordoned), pod("x", on("n2"), web)},
			pod("p", near(true, corev1.LabelTopologyZone, "a")),
			func(s *scheduler) { s.nodeGone(cluster.NewNode(node("n2", zone("a")))) }, true},
		"a full node's neighbour goes": {
			[]any{node("n1"), node("n2")}, pod("p", asks("cpu", "5")),
			func(s *scheduler) { s.nodeGone(cluster.NewNode(node("n2"))) }, false},
		"another domain, for a pod that lacks room": {
			[]any{node("n1"), node("n2", zone("a"), cordoned)}, pod("p", asks("cpu", "5")),
			func(s *scheduler) { s.sees(node("n2", zone("b"), cordoned)) }, false},
		"a pod with the port ends": {
			[]any{node("n1"), pod("x", on("n1"), port(80))}, pod("p", port(80)),
			func(s *scheduler) { s.podGone(seen(pod("x", on("n1"), port(80)))) }, true},
		"a pod with another port ends": {
			[]any{node("n1"), pod("x", on("n1"), port(80)), pod("y", on("n1"), port(81))}, pod("p", port(80)),
			func(s *scheduler) { s.podGone(seen(pod("y", on("n1"), port(81)))) }, false},
		"a counted pod is deleted": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", on("n1"), web)},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)),
			func(s *scheduler) {
				s.sees(pod("x", on("n1"), web, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
			}, true},
		"a pod that nobody counts is deleted": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", on("n1"), web), pod("y", on("n1"))},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)),
			func(s *scheduler) {
				s.sees(pod("y", on("n1"), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
			}, false},
		"a pod is on its way out and still shunned": {
			[]any{node("n1"), pod("x", on("n1"), web)}, pod("p", near(true, corev1.LabelHostname, "a")),
			func(s *scheduler) {
				s.sees(pod("x", on("n1"), web, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
			}, false},
		"a pod loses the label for which it was shunned": {
			[]any{node("n1"), pod("x", on("n1"), web)}, pod("p", near(true, corev1.LabelHostname, "a")),
			func(s *scheduler) { s.sees(pod("x", on("n1"), labelled("app", "b"))) }, true},
		"a pod gets the label that is sought": {
			[]any{node("n1"), pod("x", on("n1"))}, pod("p", near(false, corev1.LabelHostname, "a")),
			func(s *scheduler) { s.sees(pod("x", on("n1"), web)) }, true},
		"a pod gets a label that is not sought": {
			[]any{node("n1"), pod("x", on("n1"))}, pod("p", near(false, corev1.LabelHostname, "a")),
			func(s *scheduler) { s.sees(pod("x", on("n1"), labelled("app", "b"))) }, false},
		"its claim": {
			[]any{node("n1")}, pod("p", uses("mine")), func(s *scheduler) { s.sees(claimed("mine")) }, true},
		"another pod's claim": {
			[]any{node("n1")}, pod("p", uses("mine")), func(s *scheduler) { s.sees(claimed("theirs")) }, false},
		"a claim is deleted": {
			[]any{node("n1"), claimed("mine")}, pod("p", uses("mine")),
			func(s *scheduler) { s.storageGone(context.Background())(claimed("mine")) }, false},
		"a class comes": {
			[]any{node("n1"), claimed("mine")}, pod("p", uses("mine")), func(s *scheduler) {
				s.sees(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
			}, true},
		"a capacity, for a pod whose claim is missing": {
			[]any{node("n1")}, pod("p", uses("mine")), func(s *scheduler) {
				size := resource.MustParse("1Gi")
				s.sees(&storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: "c"}, StorageClassName: "c",
					Capacity: &size})
			}, false},
		"the user of a claim for one pod ends": {
			[]any{node("n1"), node("n2", cordoned), volume, oncePod, pod("x", on("n2"), once)}, pod("p", once),
			func(s *scheduler) { s.podGone(seen(pod("x", on("n2"), once))) }, true},
		"a pod that does not use the claim ends": {
			[]any{node("n1"), node("n2", cordoned), volume, oncePod, pod("x", on("n2"), once), pod("y", on("n2"))},
			pod("p", once),
			func(s *scheduler) { s.podGone(seen(pod("y", on("n2")))) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := still(t)
			s.sees(c.given...)
			s.sees(c.pod)
			s.refuses(t, "p")
			c.event(s)
			if woken := s.queue.classes[classKey(seen(c.pod))].at != inParked; woken != c.wakes {
				t.Errorf("woken: %v, want %v", woken, c.wakes)
			}
			if err := s.cluster.Verify(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Other clients may remove a nomination as well.
func TestTheEndOfANominationWakesThoseWhomItWasInTheWay(t *testing.T) {
	s := still(t)
	s.sees(node("n1"), pod("first", priority(5), asks("cpu", "3"), nominated("n1")))
	if it, ok := s.queue.pop(); !ok || it.pod.Name != "first" {
		t.Fatal("it is not tried") // the pod stays in progress
	}
	s.sees(pod("p", asks("cpu", "2")))
	s.refuses(t, "p")
	s.sees(pod("first", priority(5), asks("cpu", "3")))
	if s.queue.classes[classKey(seen(pod("p", asks("cpu", "2"))))].at == inParked {
		t.Error("the room is free again, and nobody looks")
	}
}
