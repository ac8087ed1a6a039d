package job

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// Clients choose these amounts. None of them may lead to a list of that length.
func TestDecisionsAreBoundedForAnySpec(t *testing.T) {
	const maximum = math.MaxInt32
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		change  func(*batchv1.Job)
		creates int
	}{
		"parallelism without completions": {func(j *batchv1.Job) { j.Spec.Completions = nil }, loop.Burst},
		"parallelism and completions":     {func(*batchv1.Job) {}, loop.Burst},
		"indexed": {func(j *batchv1.Job) {
			j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		}, loop.Burst},
		"indexed, all but three are complete": {func(j *batchv1.Job) {
			j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			j.Status.CompletedIndexes = fmt.Sprintf("0-5,7-%d", maximum-3)
			j.Status.Succeeded = maximum - 3
		}, 3},
		"success policy over all indexes": {func(j *batchv1.Job) {
			j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To(
				"0-1999999998")}}}
		}, loop.Burst},
		"failed indexes": {func(j *batchv1.Job) {
			j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			j.Spec.BackoffLimitPerIndex = ptr.To[int32](1)
			j.Status.FailedIndexes = ptr.To("3-2000000000")
		}, loop.Burst},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: batchv1.JobSpec{
				Completions: ptr.To[int32](maximum), Parallelism: ptr.To[int32](maximum),
				BackoffLimit: ptr.To[int32](6)}}
			c.change(job)
			var d Decision
			allocations := testing.AllocsPerRun(1, func() { d = Decide(job.DeepCopy(), nil, now) })
			if len(d.Create) != c.creates || allocations > 500 {
				t.Errorf("%d pods to create with %.0f allocations, want %d pods and at most 500 allocations",
					len(d.Create), allocations, c.creates)
			}
		})
	}
}

func TestPodsAreStoppedInBatches(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: batchv1.JobSpec{
		Completions: ptr.To[int32](5000), Parallelism: ptr.To[int32](5000), Suspend: ptr.To(true)}}
	var pods []*corev1.Pod
	for i := range loop.Burst + 10 {
		pods = append(
			pods,
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					UID:        types.UID(fmt.Sprint(i)),
					Finalizers: []string{batchv1.JobTrackingFinalizer},
				},
				Spec: corev1.PodSpec{NodeName: "n"},
				Status: corev1.PodStatus{Phase: corev1.PodRunning,
					Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
			},
		)
	}
	d := Decide(job, pods, time.Unix(1000, 0))
	s := job.Status
	if len(d.Delete) != loop.Burst || s.Active != 10 || *s.Ready != 10 || *s.Terminating != loop.Burst {
		t.Errorf("%d pods to delete; status: active %d, ready %d, terminating %d", len(d.Delete), s.Active, *s.Ready,
			*s.Terminating)
	}
}

// A status that named every finished pod would become too large to store.
func TestUncountedPodsInTheStatusAreLimited(t *testing.T) {
	for name, phase := range map[string]corev1.PodPhase{"succeeded": corev1.PodSucceeded, "failed": corev1.PodFailed} {
		t.Run(name, func(t *testing.T) {
			const n = 3*maxUncounted - 7
			w := &testCluster{
				now: time.Unix(1_000_000, 0),
				job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: batchv1.JobSpec{
					Completions: ptr.To[int32](n), Parallelism: ptr.To[int32](n), BackoffLimit: ptr.To[int32](n - 1)}},
			}
			for i := range n {
				w.pods = append(
					w.pods,
					&corev1.Pod{
						ObjectMeta: metav1.ObjectMeta{
							UID:        types.UID(fmt.Sprint(i)),
							Finalizers: []string{batchv1.JobTrackingFinalizer},
						},
						Status: corev1.PodStatus{Phase: phase},
					},
				)
			}
			for range 10 {
				w.sync()
				u := w.job.Status.UncountedTerminatedPods
				if got := len(u.Succeeded) + len(u.Failed); got > maxUncounted {
					t.Fatalf("%d pods are named in the status, want at most %d", got, maxUncounted)
				}
				if len(w.lastDecision.Create) > 0 {
					t.Fatalf("%d pods are created in place of those that are yet to be "+
						"counted", len(w.lastDecision.Create))
				}
			}
			s := w.job.Status
			if !IsFinished(w.job) || s.Succeeded+s.Failed != n {
				t.Errorf("finished %t with %d succeeded and %d failed pods, want %d", IsFinished(w.job), s.Succeeded,
					s.Failed, n)
			}
		})
	}
}

func TestInvalidAnnotationsDoNotStopTheController(t *testing.T) {
	for _, text := range []string{"-5", "-9223372036854775808", "9223372036854775807", "99999999999999999999", "x"} {
		w := newTestCluster(true, func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = ptr.To[int32](3) })
		w.sync()
		for _, pod := range w.pods {
			pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = text
			pod.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = text
		}
		w.endPods(-1, 1)
		w.syncUntilStable()
		for _, pod := range w.pods {
			if annotationCount(pod, batchv1.JobIndexFailureCountAnnotation) < 0 || failureCount(pod) < 0 {
				t.Errorf("with %q, a pod counts %d failures", text, failureCount(pod))
			}
		}
	}
}

func TestACreationStopsWhenTheJobIsDeleted(t *testing.T) {
	for name, c := range map[string]func(*batchv1.Job){
		"deleted": func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)} },
		"another": func(j *batchv1.Job) { j.UID = "another" },
		"changed": func(j *batchv1.Job) { j.Generation++ },
		"gone":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "u"},
				Spec: batchv1.JobSpec{
					Completions: ptr.To[int32](400), Parallelism: ptr.To[int32](400), BackoffLimit: ptr.To[int32](0),
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "j"}}},
			}
			client := fake.NewClientset(job)
			factory := informers.New(client)
			j := New(loop.Context{Client: client, Informers: factory, Events: record.NewFakeRecorder(2000),
				Log: slog.New(slog.DiscardHandler)}).(*controller)
			// The informer is not started: its events must not undo the changes of the test.
			indexer := informers.Jobs(factory).Informer().GetIndexer()
			if err := indexer.Add(job); err != nil {
				t.Fatal(err)
			}
			made := make(chan struct{}, 1000)
			client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if len(made) == 0 {
					change := job.DeepCopy()
					if c != nil {
						c(change)
						if err := indexer.Update(change); err != nil {
							return true, nil, err
						}
					} else if err := indexer.Delete(job); err != nil {
						return true, nil, err
					}
				}
				made <- struct{}{}
				return true, a.(clienttesting.CreateAction).GetObject(), nil
			})
			if err := j.sync(t.Context(), "n/j"); err != nil {
				t.Fatal(err)
			}
			if len(made) != 1 {
				t.Errorf("%d pods were made, want the one of the first batch", len(made))
			}
			if !j.expect.IsMet("n/j") && len(made) == 1 {
				j.expect.Created("n/j")
				if !j.expect.IsMet("n/j") {
					t.Error("pods that were not made are still expected")
				}
			}
		})
	}
}

func TestIntervalsAreSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 40
		numbers := rapid.SliceOfN(rapid.IntRange(0, limit-1), 0, 20)
		a, b := numbers.Draw(t, "a"), numbers.Draw(t, "b")
		set := func(lists ...[]int) map[int]bool {
			out := map[int]bool{}
			for _, list := range lists {
				for _, i := range list {
					out[i] = true
				}
			}
			return out
		}
		x, y := intervals(nil).with(a), intervals(nil).with(b)
		both := parseIndexes(x.union(y).String(), limit)
		want := set(a, b)
		common := 0
		for i := range limit {
			if both.has(i) != want[i] {
				t.Fatalf("%s has %d: %t", both, i, both.has(i))
			}
			if set(a)[i] && set(b)[i] {
				common++
			}
		}
		if both.count() != len(want) || x.overlap(y) != common {
			t.Fatalf("%s has %d members, want %d; %s and %s share %d, want %d", both, both.count(), len(want), x, y,
				x.overlap(y), common)
		}
		n := rapid.IntRange(0, limit).Draw(t, "n")
		var free []int
		for i := range limit {
			if !want[i] && len(free) < n {
				free = append(free, i)
			}
		}
		var got []int
		both.gaps(limit, func(i int) bool {
			if len(got) < n {
				got = append(got, i)
			}
			return len(got) < n
		})
		if fmt.Sprint(got) != fmt.Sprint(free) {
			t.Fatalf("outside of %s are %v, want %v", both, got, free)
		}
	})
}
