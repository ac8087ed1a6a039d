package node

import (
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// testController is a controller with its caches, which refresh updates.
type testController struct {
	*controller
	t         *testing.T
	client    *fake.Clientset
	informers *informers.Factory
	clock     *clocktesting.FakeClock
	events    *record.FakeRecorder
}

func newTestController(t *testing.T, nodes []*corev1.Node, pods ...*corev1.Pod) *testController {
	t.Helper()
	w := &testController{
		t:      t,
		client: fake.NewClientset(),
		clock:  clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)),
		events: record.NewFakeRecorder(100),
	}
	w.informers = informers.New(w.client)
	n, ok := New(loop.Context{Client: w.client, Informers: w.informers, Log: slog.New(slog.DiscardHandler),
		Events: w.events,
		Clock:  w.clock,
		Config: config.DefaultControllerManager()}).(*controller)
	if !ok {
		t.Fatal("it is another controller")
	}
	w.controller = n
	for _, node := range nodes {
		if err := w.client.Tracker().Add(node); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range pods {
		if err := w.client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	w.refresh()
	return w
}

func (w *testController) refresh() {
	w.t.Helper()
	nodes, err := w.client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range nodes.Items {
		if err := informers.Nodes(w.informers).Informer().GetIndexer().Update(&nodes.Items[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	pods, err := w.client.CoreV1().Pods("").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range pods.Items {
		if err := w.pods.Update(&pods.Items[i]); err != nil {
			w.t.Fatal(err)
		}
	}
}

// runPeriod checks and syncs all nodes, as each monitor period does.
func (w *testController) runPeriod() {
	w.t.Helper()
	w.sweep()
	for w.Queue().Len() > 0 {
		name, _ := w.Queue().Get()
		if err := w.sync(w.t.Context(), name); err != nil {
			w.t.Fatal(err)
		}
		w.Queue().Done(name)
	}
	w.refresh()
}

func (w *testController) node(name string) *corev1.Node {
	w.t.Helper()
	n, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *testController) recordedEvents() (list []string) {
	for len(w.events.Events) > 0 {
		list = append(list, <-w.events.Events)
	}
	return list
}

func podOn(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Generation: 3},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// A silent node and its pods become not ready. Each gets one event, and the pods' conditions get no reason.
func TestSilentNodesAndTheirPodsBecomeNotReady(t *testing.T) {
	silent, well := lostNode("silent", "a", false), lostNode("well", "a", false)
	w := newTestController(t, []*corev1.Node{silent, well}, podOn("p", "silent"), podOn("q", "well"))
	w.runPeriod()
	w.recordedEvents()
	w.clock.Step(51 * time.Second)
	n := w.node("well")
	n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(w.clock.Now())
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.refresh()
	w.runPeriod()
	w.runPeriod()
	if got := fmt.Sprint(w.recordedEvents()); got != "[Normal NodeNotReady Node silent status is now: NodeNotReady "+
		"Warning "+
		"NodeNotReady Node is not ready]" {
		t.Errorf("the event is %s", got)
	}
	pod, err := w.client.CoreV1().Pods("n").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := corev1.PodCondition{
		Type:               corev1.PodReady,
		Status:             corev1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(w.clock.Now()),
		ObservedGeneration: 3,
	}
	if got := pod.Status.Conditions; len(got) != 1 || !got[0].LastTransitionTime.Equal(&want.LastTransitionTime) ||
		got[0].Reason != "" ||
		got[0].Message != "" ||
		got[0].Status != want.Status ||
		got[0].ObservedGeneration != want.ObservedGeneration {
		t.Errorf("the pod says %+v", got)
	}
	if pod, err = w.client.CoreV1().Pods("n").Get(t.Context(), "q", metav1.GetOptions{}); err != nil ||
		pod.Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("the other node's pod says %+v (%v)", pod.Status.Conditions, err)
	}
}

// While the kubelet reports, it decides about its pods' readiness, and the controller does not overrule it.
func TestPodReadinessIsLeftToAReportingKubelet(t *testing.T) {
	n := lostNode("n", "a", false)
	n.Status.Conditions[0].Status = corev1.ConditionFalse
	w := newTestController(t, []*corev1.Node{n, lostNode("well", "a", false)}, podOn("p", "n"))
	w.runPeriod()
	w.runPeriod()
	pod, err := w.client.CoreV1().Pods("n").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || pod.Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("the pod says %+v (%v)", pod.Status.Conditions, err)
	}
	if got := Taints(w.node("n"), false, w.clock.Now()); !hasEvictingTaint(got) {
		t.Errorf("the node has taints %v", got)
	}
}

// If all nodes fall silent, the fault is in the control plane, so even existing NoExecute taints are removed.
func TestNoNodeIsTaintedWhileAllAreLost(t *testing.T) {
	a, b := lostNode("a", "a", true), lostNode("b", "a", false)
	a.Spec.Taints = []corev1.Taint{
		{Key: "mine", Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
	}
	w := newTestController(t, []*corev1.Node{a, b})
	w.runPeriod()
	if !hasEvictingTaint(w.node("a").Spec.Taints) {
		t.Fatalf("while one is lost, it has taints %v", w.node("a").Spec.Taints)
	}
	w.clock.Step(51 * time.Second)
	w.runPeriod() // b becomes silent
	w.runPeriod()
	for _, name := range []string{"a", "b"} {
		if taints := w.node(name).Spec.Taints; hasEvictingTaint(taints) {
			t.Errorf("node %s has taints %v", name, taints)
		}
	}
	if taints := w.node("a").Spec.Taints; len(taints) != 2 || taints[0].Key != "mine" ||
		taints[1].Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("a has taints %v", taints)
	}
}

// The last heartbeats of nodes that are cut off together are up to ten seconds apart. None of them is evicted
// meanwhile.
func TestNoNodeIsTaintedIfAllFallSilentWithinSeconds(t *testing.T) {
	w := newTestController(t, []*corev1.Node{lostNode("a", "a", false), lostNode("b", "a", false),
		lostNode("c", "b", false)})
	beat := func(name string) {
		n := w.node(name)
		n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(w.clock.Now())
		if _, err := w.client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.refresh()
	}
	w.runPeriod()
	for _, name := range []string{"b", "c"} { // their last heartbeats are later than that of a
		w.clock.Step(5 * time.Second)
		beat(name)
		w.runPeriod()
	}
	for range 20 {
		w.clock.Step(5 * time.Second)
		w.runPeriod()
		for _, name := range []string{"a", "b", "c"} {
			if taints := w.node(name).Spec.Taints; hasEvictingTaint(taints) {
				t.Fatalf("node %s has taints %v", name, taints)
			}
		}
	}
	if c := findCondition(w.node("c"), corev1.NodeReady); c.Status != corev1.ConditionUnknown {
		t.Errorf("the last node says %+v", c)
	}
}

func TestUnreportedNodesGetTheStartupGracePeriod(t *testing.T) {
	n := lostNode("new", "a", false)
	n.Status.Conditions = nil
	w := newTestController(t, []*corev1.Node{n})
	w.runPeriod()
	w.recordedEvents()
	w.clock.Step(55 * time.Second)
	w.runPeriod()
	if got := w.node("new").Status.Conditions; len(got) != 0 {
		t.Errorf("after 55 s it says %+v", got)
	}
	w.clock.Step(6 * time.Second)
	w.runPeriod()
	got := w.node("new").Status.Conditions
	if len(got) != 4 || got[0].Type != corev1.NodeReady || got[0].Status != corev1.ConditionUnknown ||
		got[0].Reason != "NodeStatusNeverUpdated" ||
		got[0].Message != "Kubelet never posted node status." {
		t.Errorf("after a minute it says %+v", got)
	}
	if recorded := w.recordedEvents(); len(recorded) != 0 {
		t.Errorf("an event says that the node is no longer ready, although it never was: %q", recorded)
	}
}

func TestDeprecatedLabelsHaveTheCurrentValues(t *testing.T) {
	const os, arch, oldOS, oldArch = corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os",
		"beta.kubernetes.io/arch"
	for name, c := range map[string]struct{ current, want map[string]string }{
		"both are missing": {map[string]string{os: "linux", arch: "arm64"},
			map[string]string{os: "linux", arch: "arm64", oldOS: "linux", oldArch: "arm64"}},
		"one says something else": {map[string]string{os: "linux", oldOS: "windows"},
			map[string]string{os: "linux", oldOS: "linux"}},
		"they are alike": {map[string]string{arch: "amd64", oldArch: "amd64"},
			map[string]string{arch: "amd64", oldArch: "amd64"}},
		"the successor is missing": {map[string]string{oldOS: "linux"}, map[string]string{oldOS: "linux"}},
	} {
		n := lostNode("n", "a", false)
		n.Labels = c.current
		w := newTestController(t, []*corev1.Node{n})
		if err := w.sync(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		if got := w.node("n").Labels; !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
