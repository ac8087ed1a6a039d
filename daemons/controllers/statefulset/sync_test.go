package statefulset

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// newTestController returns a controller for a set, with its pods and claims in the caches and on the server.
func newTestController(
	t *testing.T,
	set *appsv1.StatefulSet,
	pods []*corev1.Pod,
	claims ...*corev1.PersistentVolumeClaim,
) (*controller, *fake.Clientset, *record.FakeRecorder) {
	t.Helper()
	client, events := fake.NewClientset(), record.NewFakeRecorder(100)
	factory := informers.New(client)
	r, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler), Events: events,
		Clock: clocktesting.NewFakeClock(now)}).(*controller)
	if !ok {
		t.Fatal("it is no controller of stateful sets")
	}
	add := func(indexer cache.Indexer, obj runtime.Object) {
		t.Helper()
		if err := errors.Join(client.Tracker().Add(obj), indexer.Add(obj)); err != nil {
			t.Fatal(err)
		}
	}
	add(informers.StatefulSets(factory).Informer().GetIndexer(), set)
	for _, pod := range pods {
		add(informers.Pods(factory).Informer().GetIndexer(), pod)
	}
	for _, claim := range claims {
		add(informers.PersistentVolumeClaims(factory).Informer().GetIndexer(), claim)
	}
	return r, client, events
}

func recordedEvents(events *record.FakeRecorder) (recorded []string) {
	close(events.Events)
	for e := range events.Events {
		recorded = append(recorded, e)
	}
	return recorded
}

// syncOnce syncs once. It returns the resulting set, pods and events.
func syncOnce(t *testing.T, set *appsv1.StatefulSet, pods []*corev1.Pod) (*appsv1.StatefulSet, []corev1.Pod, []string) {
	t.Helper()
	r, client, events := newTestController(t, set, pods)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.sync(t.Context(), set.Namespace+"/"+set.Name))
	got, err := client.AppsV1().StatefulSets(set.Namespace).Get(t.Context(), set.Name, metav1.GetOptions{})
	must(err)
	list, err := client.CoreV1().Pods(set.Namespace).List(t.Context(), metav1.ListOptions{})
	must(err)
	return got, list.Items, recordedEvents(events)
}

func TestDeletedSetsAreCountedAndNotChanged(t *testing.T) {
	set := web(3, func(s *appsv1.StatefulSet) {
		s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: now}, []string{metav1.FinalizerDeleteDependents}
		s.Status = appsv1.StatefulSetStatus{
			CurrentRevision:    newRevision.name,
			UpdateRevision:     newRevision.name,
			Replicas:           3,
			ReadyReplicas:      3,
			ObservedGeneration: 1,
			CollisionCount:     ptr.To[int32](0),
		}
	})
	after, pods, recorded := syncOnce(t, set, podsOf(set, "0 1!"))
	s := after.Status
	if s.ObservedGeneration != 3 || s.Replicas != 2 || s.ReadyReplicas != 1 || s.CurrentReplicas != 2 ||
		s.UpdatedReplicas != 2 ||
		s.CurrentRevision != newRevision.name {
		t.Errorf("its status is %+v", s)
	}
	if len(pods) != 2 || len(recorded) != 0 {
		t.Errorf("it has %d pods; %q", len(pods), recorded)
	}
}

func TestDecisionsRecordEvents(t *testing.T) {
	unnamed := func(pods []*corev1.Pod) []*corev1.Pod {
		delete(pods[0].Labels, appsv1.PodIndexLabel)
		return pods
	}
	succeeded := func(pods []*corev1.Pod) []*corev1.Pod {
		pods[0].Status.Phase = corev1.PodSucceeded
		return pods
	}
	set := web(1, nil)
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"failed": {podsOf(set, "0f"), []string{"Normal SuccessfulDelete delete Pod web-0 in StatefulSet web " +
			"successful"}},
		"ended": {succeeded(podsOf(set, "0f")), []string{"Normal SuccessfulDelete delete Pod web-0 in StatefulSet " +
			"web successful"}},
		"made": {nil, []string{"Normal SuccessfulCreate create Pod web-0 in StatefulSet web successful"}},
		"mended": {unnamed(podsOf(set, "0")), []string{"Normal SuccessfulUpdate update Pod web-0 in StatefulSet web " +
			"successful"}},
		"removed": {podsOf(set, "0 1"), []string{"Normal SuccessfulDelete delete Pod web-1 in StatefulSet web " +
			"successful"}},
	} {
		for _, pod := range c.pods {
			pod.Labels[appsv1.StatefulSetRevisionLabel] = "other"
			pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		}
		by := set.DeepCopy()
		by.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		if _, _, recorded := syncOnce(t, by, c.pods); !slices.Equal(recorded, c.want) {
			t.Errorf("%s: %q, want %q", name, recorded, c.want)
		}
	}
}
