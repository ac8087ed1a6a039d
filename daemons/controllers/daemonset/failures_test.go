package daemonset

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// The first failed pod of a node is replaced at once. The delay then doubles with each failure, up to a quarter of an
// hour. It starts again with a new generation of the set, and after half an hour without a failure.
func TestEachFailureOnANodeDoublesTheWait(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var f failures
	edition := func(name string, generation int64) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: generation},
		}
	}
	first, second := edition("d", 1), edition("d", 2)
	var waits []time.Duration
	for range 12 {
		wait := f.remainingWaits(first, now)["a"]
		waits = append(waits, wait)
		now = now.Add(wait)
		f.recordFailure(first, "a", now)
	}
	if got, want := fmt.Sprint(waits), "[0s 1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 8m32s 15m0s]"; got != want {
		t.Errorf("its pods are replaced after\n%s, want\n%s", got, want)
	}
	if got := f.remainingWaits(first, now)["b"]; got != 0 {
		t.Errorf("another node waits %s", got)
	}
	if got := f.remainingWaits(edition("e", 1), now)["a"]; got != 0 {
		t.Errorf("another set waits %s", got)
	}
	if got := f.remainingWaits(first, now.Add(14*time.Minute))["a"]; got != time.Minute {
		t.Errorf("a minute before its time it waits %s", got)
	}
	later := now.Add(31 * time.Minute)
	f.remainingWaits(first, later)
	f.recordFailure(first, "a", later)
	if got := f.remainingWaits(first, later)["a"]; got != time.Second {
		t.Errorf("after half an hour without a failure it waits %s", got)
	}
	f.recordFailure(first, "a", later)
	if got := f.remainingWaits(second, later)["a"]; got != 0 {
		t.Errorf("a new generation waits %s", got)
	}
	f.recordFailure(second, "a", later)
	if again := edition("d", 2); f.remainingWaits(second, later)["a"] == 0 {
		t.Error("the second generation does not count")
	} else if again.UID = "another"; f.remainingWaits(again, later)["a"] != 0 {
		t.Error("another set of the same name waits")
	}
	f.recordFailure(second, "a", later)
	f.delete("shop/d")
	if len(f.bySet) != 0 {
		t.Errorf("of a set that is gone, %v is left", f.bySet)
	}
}

// The event about a failed pod is recorded when the pod is deleted, not while it waits.
func TestRepeatedFailuresDelayTheReplacement(t *testing.T) {
	labels := map[string]string{"app": "d"}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d", UID: "d", Generation: 1},
		Spec: appsv1.DaemonSetSpec{
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Selector: &metav1.LabelSelector{
				MatchLabels: labels,
			}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
	}
	client, events := fake.NewClientset(set, node("a")), record.NewFakeRecorder(100)
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	factory := informers.New(client)
	d, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler), Events: events,
		Clock: clock}).(*controller)
	if !ok {
		t.Fatal("it is no controller of daemon sets")
	}
	pods := informers.Pods(factory).Informer().GetIndexer()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(informers.DaemonSets(factory).Informer().GetIndexer().Add(set))
	must(informers.Nodes(factory).Informer().GetIndexer().Add(node("a")))
	countEvents := func() (n int) {
		for {
			select {
			case e := <-events.Events:
				if strings.HasPrefix(e,
					"Warning FailedDaemonPod Found failed daemon pod shop/p-a on node a, will try to kill it") {
					n++
				}
			default:
				return n
			}
		}
	}
	deletions := func() int {
		defer client.ClearActions()
		return len(slices.DeleteFunc(client.Actions(),
			func(a clienttesting.Action) bool { return a.GetVerb() != "delete" }))
	}
	step := func(i int) int {
		t.Helper()
		pod := podOn(set, "a", "h", "False")
		pod.Namespace, pod.UID, pod.Spec.NodeName, pod.Status.Phase = "shop", types.UID(
			fmt.Sprint("pod-", i),
		), "a", corev1.PodFailed
		pod.CreationTimestamp = metav1.NewTime(clock.Now().Add(-time.Hour)) // its age must not matter
		if i == 0 || len(pods.List()) == 0 {
			must(client.Tracker().Add(pod))
		}
		must(pods.Add(pod))
		must(d.sync(t.Context(), "shop/d"))
		count := deletions()
		if n := countEvents(); n != count {
			t.Errorf("pod %d: %d are deleted, and %d events tell of it", i, count, n)
		}
		if count > 0 {
			must(pods.Delete(pod))
			d.podChanged(pod, nil)
		}
		return count
	}
	for i, s := range []struct {
		after     time.Duration
		deletions int
	}{{0, 1}, {0, 0}, {999 * time.Millisecond, 0}, {time.Millisecond, 1}, {time.Second, 0}, {time.Second, 1},
		{3 * time.Second, 0}, {time.Second, 1}} {
		clock.Step(s.after)
		if count := step(i); count != s.deletions {
			t.Errorf("step %d: %d pods are deleted, want %d", i, count, s.deletions)
		}
	}
}
