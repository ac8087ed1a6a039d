package job

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// testCluster is a simulated cluster that carries out decisions.
type testCluster struct {
	job       *batchv1.Job
	pods      []*corev1.Pod
	now       time.Time
	n         int
	maxActive int // maximum number of active pods so far

	step         time.Duration // time between two syncs; zero means longer than any back-off
	lastDecision Decision
	lastAt       time.Time
}

func (w *testCluster) sync() {
	d := Decide(w.job, w.pods, w.now)
	w.lastDecision, w.lastAt = d, w.now
	named := uncountedUIDs(w.job)
	for _, pod := range w.pods {
		if named.Has(pod.UID) || d.Release[pod.UID] {
			pod.Finalizers = nil
		}
	}
	for _, pod := range d.Delete {
		pod.DeletionTimestamp = &metav1.Time{Time: w.now}
		pod.Status.Phase = corev1.PodFailed
		pod.Finalizers = nil
	}
	for _, i := range d.Create {
		w.n++
		pod := newPod(w.job, i, d.Replaces[i])
		pod.UID = types.UID(fmt.Sprint(w.n))
		pod.Status.Phase = corev1.PodRunning
		w.pods = append(w.pods, pod)
	}
	active := 0
	for _, pod := range w.pods {
		if pod.Status.Phase == corev1.PodRunning {
			active++
		}
	}
	w.maxActive = max(w.maxActive, active)
	w.now = w.now.Add(cmp.Or(w.step, time.Hour))
}

// Proves S19.
func TestJobsReachTheirCompletionsAndCountEveryPodOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		completions, parallelism := rapid.Int32Range(1, 6).
			Draw(t, "completions"),
			rapid.Int32Range(1, 4).
				Draw(t, "parallelism")
		limit := rapid.Int32Range(0, 3).Draw(t, "limit")
		w := &testCluster{
			now: time.Unix(1000, 0),
			job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: batchv1.JobSpec{
				Completions: &completions, Parallelism: &parallelism, BackoffLimit: &limit}},
		}
		if rapid.Bool().Draw(t, "indexed") {
			w.job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		}
		var succeeded, failed int32
		for range 100 {
			w.sync()
			if IsFinished(w.job) {
				break
			}
			for _, pod := range w.pods {
				if pod.Status.Phase != corev1.PodRunning {
					continue
				}
				switch rapid.IntRange(0, 3).Draw(t, "ends") {
				case 0:
					pod.Status.Phase = corev1.PodFailed
					failed++
				case 1, 2:
					pod.Status.Phase = corev1.PodSucceeded
					succeeded++
				}
			}
		}
		s := w.job.Status
		switch {
		case !IsFinished(w.job):
			t.Fatalf("not finished: %+v", s)
		case w.maxActive > int(parallelism):
			t.Fatalf("%d pods at once, parallelism is %d", w.maxActive, parallelism)
		case s.Succeeded != succeeded:
			t.Fatalf("counted %d successes of %d", s.Succeeded, succeeded)
		case hasCondition(s.Conditions, batchv1.JobComplete) && s.Succeeded != completions:
			t.Fatalf("complete with %d of %d", s.Succeeded, completions)
		case hasCondition(s.Conditions, batchv1.JobFailed) && failed <= limit:
			t.Fatalf("given up after %d failures, limit is %d", failed, limit)
		}
	})
}

func TestIndexesAreWrittenAsRanges(t *testing.T) {
	job := &batchv1.Job{Status: batchv1.JobStatus{CompletedIndexes: "1,3-5,7,8"}}
	if got := parseIndexes(job.Status.CompletedIndexes, 9).String(); got != "1,3-5,7,8" {
		t.Errorf("got %s", got)
	}
}

// Proves S19.
func TestDeadlinesEndJobs(t *testing.T) {
	now := time.Unix(1000, 0)
	w := &testCluster{
		now: now,
		job: &batchv1.Job{
			Spec: batchv1.JobSpec{
				Completions:           ptr.To[int32](1),
				Parallelism:           ptr.To[int32](1),
				ActiveDeadlineSeconds: ptr.To[int64](60),
			},
		},
	}
	for range 4 {
		w.sync()
	}
	if !hasCondition(w.job.Status.Conditions, batchv1.JobFailed) ||
		w.job.Status.Conditions[0].Reason != "DeadlineExceeded" {
		t.Errorf("conditions: %+v", w.job.Status.Conditions)
	}
}
