package scheduler

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/daemons/scheduler/plugin"
)

// Dashboards use these names of events.
func TestRequeueEventsHaveUpstreamsNames(t *testing.T) {
	cpu := func(amount string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(amount) }
	}
	nodeLabel := func(n *corev1.Node) { n.Labels["disk"] = "fast" }
	fast := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	for name, c := range map[string]struct {
		given []any
		pod   *corev1.Pod
		event func(s *scheduler)
		want  string
	}{
		"a node comes": {[]any{node("n1", cordoned)}, pod("p"),
			func(s *scheduler) { s.handleAdded(node("n2")) }, "NodeAdd"},
		"a node takes pods again": {[]any{node("n1", cordoned)}, pod("p"),
			func(s *scheduler) { s.handleAdded(node("n1")) }, "NodeUpdateNodeTaint"},
		"a taint goes": {[]any{node("n1", tainted("NoSchedule"))}, pod("p"),
			func(s *scheduler) { s.handleAdded(node("n1")) }, "NodeUpdateNodeTaint"},
		"a node has more to give": {[]any{node("n1")}, pod("p", withRequest("cpu", "5")),
			func(s *scheduler) { s.handleAdded(node("n1", cpu("8"))) }, "NodeUpdateNodeAllocatable"},
		"a node has another label": {[]any{node("n1")}, pod("p", fast),
			func(s *scheduler) { s.handleAdded(node("n1", nodeLabel)) }, "NodeUpdateNodeLabel"},
		"a pod goes": {[]any{node("n1"), pod("x", withNodeName("n1"), withRequest("cpu", "4"))},
			pod("p", withRequest("cpu", "2")),
			func(s *scheduler) { s.podDeleted(convertPod(pod("x", withNodeName("n1"), withRequest("cpu", "4")))) },
			"AssignedPodDelete"},
		"a pod asks for less": {[]any{node("n1"), pod("x", withNodeName("n1"), withRequest("cpu", "4"))},
			pod("p", withRequest("cpu", "2")),
			func(s *scheduler) { s.handleAdded(pod("x", withNodeName("n1"), withRequest("cpu", "1"))) },
			"AssignedPodUpdatePodScaleDown"},
		"a claim comes": {[]any{node("n1")}, pod("p", withClaim("mine")),
			func(s *scheduler) { s.storageUpdated(t.Context())(boundClaim("mine", "v"), plugin.ActionAdd) },
			"PersistentVolumeClaimAdd"},
		"a pod is wanted where others are": {[]any{node("n1")},
			pod("p", withPodAffinity(false, corev1.LabelHostname, "a")),
			func(s *scheduler) { s.handleAdded(pod("x", withNodeName("n1"), labelled("app", "a"))) }, "AssignedPodAdd"},
		"a pod becomes one of those": {[]any{node("n1"), pod("x", withNodeName("n1"))},
			pod("p", withPodAffinity(false, corev1.LabelHostname, "a")),
			func(s *scheduler) { s.handleAdded(pod("x", withNodeName("n1"), labelled("app", "a"))) },
			"AssignedPodUpdatePodLabel"},
		"it bears the taint": {[]any{node("n1", tainted("NoSchedule"))}, pod("p"),
			func(s *scheduler) { s.handleAdded(pod("p", tolerant)) }, "UnschedulablePodUpdatePodToleration"},
		"it has another label": {[]any{node("n1", cordoned)}, pod("p"),
			func(s *scheduler) { s.handleAdded(pod("p", labelled("app", "b"))) }, "UnschedulablePodUpdatePodLabel"},
		"it asks for less": {[]any{node("n1")}, pod("p", withRequest("cpu", "5")),
			func(s *scheduler) { s.handleAdded(pod("p", withRequest("cpu", "1"))) }, "UnschedulablePodUpdate"},
		"its gates are opened": {[]any{node("n1"), pod("gated", gatedBy("g"))}, pod("p", withRequest("cpu", "5")),
			func(s *scheduler) { s.handleAdded(pod("gated")) }, "UnschedulablePodUpdatePodSchedulingGatesEliminated"},
		"it comes with a node": {[]any{node("n1")}, pod("p", withRequest("cpu", "5")),
			func(s *scheduler) { s.handleAdded(pod("another")) }, "UnschedulablePodAdd"},
	} {
		s := idleScheduler(t)
		s.handleAdded(c.given...)
		s.handleAdded(c.pod)
		s.refuseNext(t, "p")
		var got []string
		s.queue.onEnter = func(_, event string, _ int) { got = append(got, event) }
		c.event(s)
		if !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func boundClaim(name, volume string) *corev1.PersistentVolumeClaim {
	c := unboundClaim(name)
	c.Spec.VolumeName, c.Annotations = volume, map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	return c
}

func TestObjectEventsHaveUpstreamsNames(t *testing.T) {
	for _, c := range []struct {
		event plugin.EventKind
		obj   any
		want  string
	}{
		{plugin.StorageChanged, &corev1.PersistentVolume{}, "PersistentVolume"},
		{plugin.StorageChanged, &storagev1.StorageClass{}, "storage.k8s.io/StorageClass"},
		{plugin.StorageChanged, &storagev1.CSINode{}, "storage.k8s.io/CSINode"},
		{plugin.StorageChanged, &storagev1.VolumeAttachment{}, "storage.k8s.io/VolumeAttachment"},
		{plugin.DevicesChanged, &resourcev1.ResourceClaim{}, "resource.k8s.io/ResourceClaim"},
		{plugin.DevicesChanged, &resourcev1.DeviceClass{}, "resource.k8s.io/DeviceClass"},
		{plugin.DevicesChanged, &resourcev1.ResourceSlice{}, "resource.k8s.io/ResourceSlice"},
		{plugin.DevicesChanged, &resourcev1.DeviceTaintRule{}, "resource.k8s.io/ResourceSlice"},
	} {
		for action, ending := range map[string]string{"": "Update", plugin.ActionAdd: "Add",
			plugin.ActionDelete: "Delete"} {
			if got := (plugin.ClusterEvent{EventKind: c.event, Storage: c.obj, Device: c.obj,
				Action: action}).Name(); got != c.want+ending {
				t.Errorf("%T %q is %s, want %s", c.obj, action, got, c.want+ending)
			}
		}
	}
	if got := (plugin.ClusterEvent{EventKind: plugin.DomainsChanged,
		Action: plugin.ActionDelete}).Name(); got != "NodeDelete" {
		t.Errorf("a node that is gone is %s", got)
	}
	if got := (plugin.ClusterEvent{EventKind: plugin.DomainsChanged,
		IsNamespaceChange: true}).Name(); got != "NamespaceUpdate" {
		t.Errorf("a namespace with other labels is %s", got)
	}
}

// The events equal those of upstream's scheduler.
// Proves S17.
func TestEventsNameTheAction(t *testing.T) {
	api := startScheduler(t, node("n1"), pod("lesser", withNodeName("n1"), withRequest("cpu", "4")),
		pod("important", priority(10), withRequest("cpu", "2")), pod("waits", withRequest("cpu", "8")))
	waitFor(t, hasEvent(api, "Preempted", "on node n1"))
	waitFor(t, hasEvent(api, "FailedScheduling", "Insufficient cpu"))
	waitFor(t, hasEvent(api, "Scheduled", "default/important"))
	list, err := api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		related := ""
		if e.Related != nil {
			related = e.Related.Kind + "/" + e.Related.Name
		}
		want := map[string]string{"Scheduled": "Binding ", "FailedScheduling": "Scheduling ",
			"Preempted": "Preempting Pod/important"}[e.Reason]
		if got := e.Action + " " + related; got != want {
			t.Errorf("%s is %q, want %q", e.Reason, got, want)
		}
		if e.EventTime.IsZero() || len(e.ReportingInstance) <= len("default-scheduler-") {
			t.Errorf("%s was at %s, reported by %q", e.Reason, e.EventTime, e.ReportingInstance)
		}
	}
}

// A finalizer holds a deleted pod, which takes no resources any more.
func TestDeletedPodsAreNotScheduled(t *testing.T) {
	api := startScheduler(t, node("n1"), pod("running", withNodeName("n1"), withRequest("cpu", "3")),
		pod("going", withRequest("cpu", "3")))
	waitFor(t, hasEvent(api, "FailedScheduling", "Insufficient cpu"))
	going := getPod(t, api, "going")
	deleted := metav1.Now() // a zero time would be lost when the scheduler's patch encodes the pod
	going.DeletionTimestamp, going.Finalizers, going.Generation = &deleted, []string{"example.com/hold"}, 2
	if _, err := api.CoreV1().Pods("default").Update(t.Context(), going, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, hasEvent(api, "FailedScheduling", "skip schedule deleting pod: default/going"))
	if _, err := api.CoreV1().Nodes().Create(t.Context(), node("n2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createPod(t, api, pod("late", withRequest("cpu", "3")))
	waitFor(t, isPlacedOn(t, api, "late", "n2"))
	if got := getPod(t, api, "going").Spec.NodeName; got != "" {
		t.Errorf("it went to %s", got)
	}
}

// A pod that is deleted after it was taken from the queue is not scheduled.
func TestPodsDeletedAfterTheyWereTakenFromTheQueueAreNotScheduled(t *testing.T) {
	s := idleScheduler(t)
	s.handleAdded(node("n1"), pod("p"))
	it, ok := s.queue.pop()
	if !ok {
		t.Fatal("no pod is tried")
	}
	s.podDeleted(convertPod(pod("p")))
	s.schedule(t.Context(), it)
	if p := s.cluster.Pod(it.pod.UID); p != nil {
		t.Error("it is counted on a node")
	}
}

// If another client takes a volume back from a claim, the pod does not wait for it and is tried again.
func TestPodsAreRetriedWhenTheirVolumeIsReleased(t *testing.T) {
	api := startScheduler(t)
	version := 10
	react(api, "update", "persistentvolumes", withResourceVersions(&version))
	for _, obj := range waitingClaim() {
		if err := api.Tracker().Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "v", ResourceVersion: "5"},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "late",
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
	if _, err := api.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.CoreV1().Nodes().Create(t.Context(), node("n1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createPod(t, api, pod("p", withClaim("data")))
	var given *corev1.PersistentVolume
	isGiven := func() (err error) {
		if given, err = api.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{}); err == nil &&
			(given.Spec.ClaimRef == nil || given.Spec.ClaimRef.UID != "data") {
			err = fmt.Errorf("the volume is given to %v", given.Spec.ClaimRef)
		}
		return err
	}
	waitFor(t, isGiven)
	given = given.DeepCopy()
	given.Spec.ClaimRef = nil
	if _, err := api.CoreV1().PersistentVolumes().Update(t.Context(), given, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, hasEvent(api, "FailedScheduling",
		`running PreBind plugin "VolumeBinding": binding volumes: ClaimRef got reset for pv "v"`))
	waitFor(t, isGiven)
}

// withResourceVersions gives written objects a new resource version.
func withResourceVersions(version *int) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		if update, ok := action.(clienttesting.UpdateAction); ok {
			if obj, ok := update.GetObject().(metav1.Object); ok {
				*version++
				obj.SetResourceVersion(fmt.Sprint(*version))
			}
		}
		return false, nil, nil
	}
}
