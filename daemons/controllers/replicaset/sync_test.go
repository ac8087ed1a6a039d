package replicaset

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

var now = time.Unix(1_000_000, 0)

func webSet(name string, n int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), Generation: 4},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n,
			Selector: &metav1.LabelSelector{
				MatchLabels: labels,
			}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web",
				"tier": "front"}}}},
	}
}

func podOf(owner metav1.Object, name string, change func(*corev1.Pod)) *corev1.Pod {
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	if _, ok := owner.(*corev1.ReplicationController); ok {
		kind = corev1.SchemeGroupVersion.WithKind("ReplicationController")
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "n",
			Name:              name,
			UID:               types.UID(name),
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels: map[string]string{
				"app":  "web",
				"tier": "front",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: corev1.PodSpec{NodeName: "m"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{
					Type:               corev1.PodReady,
					Status:             corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
				},
			}},
	}
	if change != nil {
		change(p)
	}
	return p
}

type testCluster struct {
	r      *controller
	client *fake.Clientset
	events *record.FakeRecorder
	clock  *clocktesting.FakeClock
}

func newTestCluster(t *testing.T, make func(loop.Context) loop.Controller, objs ...runtime.Object) *testCluster {
	t.Helper()
	w := &testCluster{client: fake.NewClientset(), events: record.NewFakeRecorder(100),
		clock: clocktesting.NewFakeClock(now)}
	factory := informers.New(w.client)
	made, ok := make(loop.Context{Client: w.client, Informers: factory, Log: slog.New(slog.DiscardHandler),
		Events: w.events, Clock: w.clock}).(*controller)
	if !ok {
		t.Fatal("it is another controller")
	}
	w.r = made
	for _, obj := range objs {
		indexer := informers.Pods(factory).Informer().GetIndexer()
		switch obj.(type) {
		case *appsv1.ReplicaSet:
			indexer = informers.ReplicaSets(factory).Informer().GetIndexer()
		case *corev1.ReplicationController:
			indexer = informers.ReplicationControllers(factory).Informer().GetIndexer()
		}
		if err := errors.Join(w.client.Tracker().Add(obj), indexer.Add(obj)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *testCluster) recordedEvents() (out []string) {
	close(w.events.Events)
	for e := range w.events.Events {
		out = append(out, e)
	}
	return out
}

func TestStatusCountsPods(t *testing.T) {
	set := webSet("web", 4)
	set.Spec.MinReadySeconds = 10
	w := newTestCluster(
		t,
		New,
		set,
		podOf(set, "available", nil),
		podOf(set, "just-ready",
			func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Second)) }),
		podOf(set, "not-ready", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		podOf(set, "less-labelled", func(p *corev1.Pod) { delete(p.Labels, "tier") }),
		podOf(set, "terminating", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: now}, []string{"example.com/wait"}
		}),
		podOf(set, "failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		podOf(set, "succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	)
	if err := w.r.sync(t.Context(), "n/web"); err != nil {
		t.Fatal(err)
	}
	current, err := w.client.AppsV1().ReplicaSets("n").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := current.Status
	got := fmt.Sprint(s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas,
		ptr.Deref(s.TerminatingReplicas, -1), s.ObservedGeneration, s.Conditions)
	if want := "4 3 3 2 1 4 []"; got != want {
		t.Errorf("it says %s, want %s", got, want)
	}
}

// A new leader in the middle of minReadySeconds syncs again when the remaining time has passed, not after the whole
// period.
func TestSetsAreSyncedWhenTheNextPodBecomesAvailable(t *testing.T) {
	set := webSet("web", 1)
	set.Spec.MinReadySeconds = 60
	w := newTestCluster(t, New, set, podOf(set, "p", func(p *corev1.Pod) {
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-50 * time.Second))
	}))
	if err := w.r.sync(t.Context(), "n/web"); err != nil {
		t.Fatal(err)
	}
	if n := w.r.Queue().Len(); n != 0 {
		t.Fatalf("%d keys wait already", n)
	}
	w.clock.Step(10 * time.Second)
	got := make(chan string, 1)
	go func() {
		key, _ := w.r.Queue().Get()
		got <- key
	}()
	select {
	case key := <-got:
		if key != "n/web" {
			t.Errorf("it is %q", key)
		}
	case <-time.After(30 * time.Second):
		w.r.Queue().ShutDown()
		t.Error("it is not looked at again")
	}
}

func TestReplicationControllersCountLikeReplicaSets(t *testing.T) {
	rc := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "web", UID: "web", Generation: 4},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: ptr.To[int32](3), MinReadySeconds: 10, Selector: map[string]string{"app": "web"},
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "tier": "front"}},
			}},
	}
	w := newTestCluster(t, NewReplicationControllers, rc, podOf(rc, "a", nil), podOf(rc, "b",
		func(p *corev1.Pod) { delete(p.Labels, "tier") }))
	if err := w.r.sync(t.Context(), "n/web"); err != nil {
		t.Fatal(err)
	}
	current, err := w.client.CoreV1().ReplicationControllers("n").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := current.Status
	if got := fmt.Sprint(s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, s.ObservedGeneration,
		s.Conditions); got != "2 1 2 2 4 []" {
		t.Errorf("it says %s", got)
	}
	pods, err := w.client.CoreV1().Pods("n").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 3 {
		t.Errorf("%d pods (%v)", len(pods.Items), err)
	}
	for _, p := range pods.Items {
		if ref := metav1.GetControllerOf(&p); ref == nil || ref.Kind != "ReplicationController" ||
			ref.APIVersion != "v1" ||
			!strings.HasPrefix(p.Name, "web-") && len(p.Name) > 1 {
			t.Errorf("%s is of %+v", p.Name, ref)
		}
	}
}

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no"))

func TestFailuresAreReportedUntilTheyEnd(t *testing.T) {
	first := metav1.NewTime(now.Add(-time.Hour))
	before := []appsv1.ReplicaSetCondition{
		{
			Type:               "ReplicaFailure",
			Status:             "True",
			Reason:             "FailedCreate",
			Message:            "the first",
			LastTransitionTime: first,
		},
	}
	for name, c := range map[string]struct {
		n        int32
		pods     int
		old      []appsv1.ReplicaSetCondition
		fails    string // a verb
		want     string
		recorded []string
	}{
		"pods cannot be made": {2, 1, nil, "create", "FailedCreate " + errForbidden.Error(),
			[]string{"Warning FailedCreate Error creating: " + errForbidden.Error()}},
		"pods cannot be deleted": {1, 2, nil, "delete", "FailedDelete " + errForbidden.Error(),
			[]string{"Warning FailedDelete Error deleting: " + errForbidden.Error()}},
		"it was so before": {2, 1, before, "create", "FailedCreate the " +
			"first", []string{"Warning FailedCreate Error creating: " + errForbidden.Error()}},
		"it is over": {1, 1, before, "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			set := webSet("web", c.n)
			set.Status.Conditions = c.old
			objs := []runtime.Object{set}
			for i := range c.pods {
				objs = append(objs, podOf(set, fmt.Sprint("p", i), nil))
			}
			w := newTestCluster(t, New, objs...)
			w.client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if a.GetVerb() != c.fails {
					return false, nil, nil
				}
				return true, nil, errForbidden
			})
			if err := w.r.sync(t.Context(), "n/web"); (err != nil) != (c.fails != "") {
				t.Fatal(err)
			}
			updated, err := w.client.AppsV1().ReplicaSets("n").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, condition := range updated.Status.Conditions {
				got += condition.Reason + " " + condition.Message
			}
			if got != c.want {
				t.Errorf("it says %q, want %q", got, c.want)
			}
			if recorded := w.recordedEvents(); !slices.Equal(recorded, c.recorded) {
				t.Errorf("events %q, want %q", recorded, c.recorded)
			}
		})
	}
}

// Of a deployment's pods, those that share a node are deleted first, even if they belong to different sets.
func TestPodsThatShareANodeWithTheDeploymentAreDeletedFirst(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", UID: "d"}}
	owned := []metav1.OwnerReference{
		*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment")),
	}
	old, young, stranger := webSet("old", 1), webSet("young", 2), webSet("stranger", 3)
	old.OwnerReferences, young.OwnerReferences = owned, owned
	on := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	w := newTestCluster(t, New, old, young, stranger, podOf(old, "a", on("m1")), podOf(old, "b", on("m2")),
		podOf(young, "c", on("m2")), podOf(young, "d", on("m2")), podOf(stranger, "e", on("m1")),
		podOf(stranger, "f", on("m1")), podOf(stranger, "g", on("m1")))
	if err := w.r.sync(t.Context(), "n/old"); err != nil {
		t.Fatal(err)
	}
	if recorded := w.recordedEvents(); !slices.Equal(recorded, []string{"Normal SuccessfulDelete Deleted pod: b"}) {
		t.Errorf("events %q", recorded)
	}
}
