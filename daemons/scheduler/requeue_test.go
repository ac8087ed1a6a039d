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

func (s *scheduler) handleAdded(objects ...any) {
	for _, obj := range objects {
		switch o := obj.(type) {
		case *corev1.Node:
			s.nodeUpdated(cluster.NewNode(o))
		case *corev1.Pod:
			s.podUpdated(convertPod(o))
		default:
			s.storageUpdated(context.Background())(o, "")
		}
	}
}

// refuseNext schedules the next pod, and fails the test unless it is refused.
func (s *scheduler) refuseNext(t *testing.T, name string) {
	t.Helper()
	it, ok := s.queue.pop()
	if !ok || it.pod.Name != name {
		t.Fatalf("the next pod is %+v, want %s", it, name)
	}
	s.schedule(context.Background(), it)
	if it.pos < 0 || it.class.part != partParked {
		t.Fatalf("%s was not refused", name)
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func unboundClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "c"}}
}

// The test covers which events activate a refused pod, and which do not.
//
//style:long a table of events, with the refused pod for each
func TestEventsActivateOnlyPodsThatTheyMayHelp(t *testing.T) {
	web := labelled("app", "a")
	honors := func(p *corev1.Pod) {
		spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)(p)
		honor := corev1.NodeInclusionPolicyHonor
		p.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy = &honor
	}
	port := func(n int32) func(*corev1.Pod) { return hostPort(n) }
	once := func(p *corev1.Pod) { p.Spec.Volumes = nil; withClaim("once")(p) }
	oncePod := unboundClaim("once")
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
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", withNodeName("n1"), web)},
			pod("p", web, honors),
			func(s *scheduler) { s.handleAdded(node("n2", zone("b"), cordoned, tainted("NoSchedule"))) }, true},
		"a node takes what the pod shuns to another domain": {
			[]any{node("n1", zone("a")), node("n2", zone("a"), cordoned), pod("x", withNodeName("n2"), web)},
			pod("p", withPodAffinity(true, corev1.LabelTopologyZone, "a")),
			func(s *scheduler) { s.handleAdded(node("n2", zone("b"), cordoned)) }, true},
		"a taint, for a pod that shuns": {
			[]any{node("n1", zone("a")), node("n2", zone("a"), cordoned), pod("x", withNodeName("n2"), web)},
			pod("p", withPodAffinity(true, corev1.LabelTopologyZone, "a")),
			func(s *scheduler) { s.handleAdded(node("n2", zone("a"), cordoned, tainted("NoSchedule"))) }, false},
		"a node takes a pod that shuns to another domain": {
			[]any{node("n1", zone("a")), node("n2", zone("a"), cordoned),
				pod("x", withNodeName("n2"), withPodAffinity(true, corev1.LabelTopologyZone, "a"))}, pod("p", web),
			func(s *scheduler) { s.handleAdded(node("n2", zone("b"), cordoned)) }, true},
		"a taint, for a pod whose constraints do not look at taints": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", withNodeName("n1"), web)},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)),
			func(s *scheduler) { s.handleAdded(node("n2", zone("b"), cordoned, tainted("NoSchedule"))) }, false},
		"a label that is no topology": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", withNodeName("n1"), web)},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)),
			func(s *scheduler) {
				s.handleAdded(node("n2", zone("b"), cordoned, func(n *corev1.Node) { n.Labels["x"] = "y" }))
			}, false},
		"a node with what the pod shuns goes": {
			[]any{node("n1", zone("a")), node("n2", zone("a"), cordoned), pod("x", withNodeName("n2"), web)},
			pod("p", withPodAffinity(true, corev1.LabelTopologyZone, "a")),
			func(s *scheduler) { s.nodeDeleted(cluster.NewNode(node("n2", zone("a")))) }, true},
		"a full node's neighbour goes": {
			[]any{node("n1"), node("n2")}, pod("p", withRequest("cpu", "5")),
			func(s *scheduler) { s.nodeDeleted(cluster.NewNode(node("n2"))) }, false},
		"another domain, for a pod that lacks room": {
			[]any{node("n1"), node("n2", zone("a"), cordoned)}, pod("p", withRequest("cpu", "5")),
			func(s *scheduler) { s.handleAdded(node("n2", zone("b"), cordoned)) }, false},
		"a pod with the port ends": {
			[]any{node("n1"), pod("x", withNodeName("n1"), port(80))}, pod("p", port(80)),
			func(s *scheduler) { s.podDeleted(convertPod(pod("x", withNodeName("n1"), port(80)))) }, true},
		"a pod with another port ends": {
			[]any{node("n1"), pod("x", withNodeName("n1"), port(80)), pod("y", withNodeName("n1"), port(81))},
			pod("p", port(80)),
			func(s *scheduler) { s.podDeleted(convertPod(pod("y", withNodeName("n1"), port(81)))) }, false},
		"a counted pod is deleted": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", withNodeName("n1"), web)},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)),
			func(s *scheduler) {
				s.handleAdded(pod("x", withNodeName("n1"), web,
					func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
			}, true},
		"a pod that nobody counts is deleted": {
			[]any{node("n1", zone("a")), node("n2", zone("b"), cordoned), pod("x", withNodeName("n1"), web),
				pod("y", withNodeName("n1"))},
			pod("p", web, spreadOver(corev1.LabelTopologyZone, corev1.DoNotSchedule)),
			func(s *scheduler) {
				s.handleAdded(pod("y", withNodeName("n1"),
					func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
			}, false},
		"a pod is on its way out and still shunned": {
			[]any{node("n1"), pod("x", withNodeName("n1"), web)},
			pod("p", withPodAffinity(true, corev1.LabelHostname, "a")),
			func(s *scheduler) {
				s.handleAdded(pod("x", withNodeName("n1"), web,
					func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
			}, false},
		"a pod loses the label for which it was shunned": {
			[]any{node("n1"), pod("x", withNodeName("n1"), web)},
			pod("p", withPodAffinity(true, corev1.LabelHostname, "a")),
			func(s *scheduler) { s.handleAdded(pod("x", withNodeName("n1"), labelled("app", "b"))) }, true},
		"a pod gets the label that is sought": {
			[]any{node("n1"), pod("x", withNodeName("n1"))},
			pod("p", withPodAffinity(false, corev1.LabelHostname, "a")),
			func(s *scheduler) { s.handleAdded(pod("x", withNodeName("n1"), web)) }, true},
		"a pod gets a label that is not sought": {
			[]any{node("n1"), pod("x", withNodeName("n1"))},
			pod("p", withPodAffinity(false, corev1.LabelHostname, "a")),
			func(s *scheduler) { s.handleAdded(pod("x", withNodeName("n1"), labelled("app", "b"))) }, false},
		"its claim": {
			[]any{node("n1")}, pod("p", withClaim("mine")), func(s *scheduler) { s.handleAdded(unboundClaim("mine")) },
			true},
		"another pod's claim": {
			[]any{node("n1")}, pod("p", withClaim("mine")),
			func(s *scheduler) { s.handleAdded(unboundClaim("theirs")) }, false},
		"a claim is deleted": {
			[]any{node("n1"), unboundClaim("mine")}, pod("p", withClaim("mine")),
			func(s *scheduler) { s.storageDeleted(context.Background())(unboundClaim("mine")) }, false},
		"a class comes": {
			[]any{node("n1"), unboundClaim("mine")}, pod("p", withClaim("mine")), func(s *scheduler) {
				s.handleAdded(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
			}, true},
		"a capacity, for a pod whose claim is missing": {
			[]any{node("n1")}, pod("p", withClaim("mine")), func(s *scheduler) {
				size := resource.MustParse("1Gi")
				s.handleAdded(&storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: "c"},
					StorageClassName: "c",
					Capacity:         &size})
			}, false},
		"the user of a claim for one pod ends": {
			[]any{node("n1"), node("n2", cordoned), volume, oncePod, pod("x", withNodeName("n2"), once)},
			pod("p", once),
			func(s *scheduler) { s.podDeleted(convertPod(pod("x", withNodeName("n2"), once))) }, true},
		"a pod that does not use the claim ends": {
			[]any{node("n1"), node("n2", cordoned), volume, oncePod, pod("x", withNodeName("n2"), once),
				pod("y", withNodeName("n2"))},
			pod("p", once),
			func(s *scheduler) { s.podDeleted(convertPod(pod("y", withNodeName("n2")))) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := idleScheduler(t)
			s.handleAdded(c.given...)
			s.handleAdded(c.pod)
			s.refuseNext(t, "p")
			c.event(s)
			if woken := s.queue.classes[classKey(convertPod(c.pod))].part != partParked; woken != c.wakes {
				t.Errorf("woken: %v, want %v", woken, c.wakes)
			}
			if err := s.cluster.Verify(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Other clients may remove a nomination as well.
func TestRemovedNominationsActivateBlockedPods(t *testing.T) {
	s := idleScheduler(t)
	s.handleAdded(node("n1"), pod("first", priority(5), withRequest("cpu", "3"), nominated("n1")))
	if it, ok := s.queue.pop(); !ok || it.pod.Name != "first" {
		t.Fatal("it is not tried") // the pod stays in progress
	}
	s.handleAdded(pod("p", withRequest("cpu", "2")))
	s.refuseNext(t, "p")
	s.handleAdded(pod("first", priority(5), withRequest("cpu", "3")))
	if s.queue.classes[classKey(convertPod(pod("p", withRequest("cpu", "2"))))].part == partParked {
		t.Error("the room is free again, and the pod is not tried")
	}
}
