package dev

import (
	"context"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// startJob creates a job whose pods run a command and are not restarted in place.
func startJob(t *testing.T, ns string, change func(*batchv1.JobSpec), command ...string) {
	t.Helper()
	spec := podSpec(command...)
	spec.RestartPolicy = corev1.RestartPolicyNever
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "j"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
	}
	if change != nil {
		change(&j.Spec)
	}
	must[*batchv1.Job](t)(sharedClient.BatchV1().Jobs(ns).Create(t.Context(), j, metav1.CreateOptions{}))
}

// awaitJob waits until ok accepts the job's status.
func awaitJob(t *testing.T, ns, what string, ok func(batchv1.JobStatus) bool) batchv1.JobStatus {
	t.Helper()
	var s batchv1.JobStatus
	waitFor(t, what, func(ctx context.Context) (bool, any) {
		j, err := sharedClient.BatchV1().Jobs(ns).Get(ctx, "j", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		s = j.Status
		return ok(s), s
	})
	return s
}

func hasJobCondition(kind batchv1.JobConditionType, reason string) func(batchv1.JobStatus) bool {
	return func(s batchv1.JobStatus) bool {
		return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue && (reason == "" || c.Reason == reason)
		})
	}
}

// awaitNoFinalizers waits until no pod of the job has the finalizer for counting.
func awaitNoFinalizers(t *testing.T, ns string) {
	t.Helper()
	waitFor(t, "all pods to be counted", func(context.Context) (bool, any) {
		for _, pod := range podsOf(t, ns, "") {
			if len(pod.Finalizers) > 0 {
				return false, pod.Name
			}
		}
		return true, nil
	})
}

// Proves S19.
func TestAParallelJobRunsToItsCompletions(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptr.To[int32](6), ptr.To[int32](3) },
		"true")
	s := awaitJob(t, ns, "completion", func(s batchv1.JobStatus) bool {
		if s.Active > 3 {
			t.Fatalf("%d active at once", s.Active)
		}
		return hasJobCondition(batchv1.JobComplete, "")(s)
	})
	if s.Succeeded != 6 || s.Failed != 0 || s.Active != 0 || s.CompletionTime == nil {
		t.Errorf("status: %+v", s)
	}
	if pods := podsOf(t, ns, ""); len(pods) != 6 {
		t.Errorf("%d pods, want 6", len(pods))
	}
	awaitNoFinalizers(t, ns)
}

// Proves S19.
func TestAnIndexedJobCompletesEachIndexOnce(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, func(s *batchv1.JobSpec) {
		s.Completions, s.Parallelism, s.CompletionMode = ptr.To[int32](5), ptr.To[int32](2), ptr.To(
			batchv1.IndexedCompletion,
		)
	}, "true")
	s := awaitJob(t, ns, "completion", hasJobCondition(batchv1.JobComplete, ""))
	if s.CompletedIndexes != "0-4" || s.Succeeded != 5 {
		t.Errorf("status: %+v", s)
	}
	seen := map[string]int{}
	for _, pod := range podsOf(t, ns, "") {
		seen[pod.Annotations[batchv1.JobCompletionIndexAnnotation]]++
	}
	if len(seen) != 5 || seen["0"] != 1 || seen["4"] != 1 {
		t.Errorf("indexes: %v", seen)
	}
}

// Proves S19.
func TestAJobFailsAtItsBackoffLimit(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, func(s *batchv1.JobSpec) { s.BackoffLimit = ptr.To[int32](0) }, "false")
	if s := awaitJob(t, ns, "failure",
		hasJobCondition(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)); s.Failed != 1 ||
		s.Active != 0 {
		t.Errorf("status: %+v", s)
	}
	awaitNoFinalizers(t, ns)
}

// Proves S19.
func TestAJobFailsAtItsDeadlineAndStopsItsPods(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns,
		func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds, s.Parallelism = ptr.To[int64](1), ptr.To[int32](2) })
	awaitJob(t, ns, "failure", hasJobCondition(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded))
	waitFor(t, "no pod that runs", func(context.Context) (bool, any) {
		for _, pod := range podsOf(t, ns, "") {
			if pod.Status.Phase == corev1.PodRunning {
				return false, pod.Name
			}
		}
		return true, nil
	})
}

// Proves S19.
func TestASuspendedJobStopsItsPodsAndResumes(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, func(s *batchv1.JobSpec) { s.Suspend, s.Parallelism = ptr.To(true), ptr.To[int32](2) })
	suspend := func(v string) {
		if _, err := sharedClient.BatchV1().Jobs(ns).Patch(t.Context(), "j", types.MergePatchType, []byte(`{"spec":{"suspend":`+v+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitJob(t, ns, "suspension", hasJobCondition(batchv1.JobSuspended, ""))
	if pods := podsOf(t, ns, ""); len(pods) != 0 {
		t.Errorf("a suspended job has pods: %d", len(pods))
	}
	suspend("false")
	awaitJob(t, ns, "two active pods",
		func(s batchv1.JobStatus) bool { return s.Active == 2 && *s.Ready == 2 && s.StartTime != nil })
	suspend("true")
	s := awaitJob(t, ns, "no active pod", func(s batchv1.JobStatus) bool {
		return s.Active == 0 && *s.Terminating == 0 && s.StartTime == nil &&
			hasJobCondition(batchv1.JobSuspended, "")(s)
	})
	waitFor(t, "no pod", func(context.Context) (bool, any) { n := len(podsOf(t, ns, "")); return n == 0, n })
	if s.Failed != 0 {
		t.Errorf("suspending counted as %d failures", s.Failed)
	}
}

// A job whose pods are never scheduled can be ended, and its pods are deleted.
// Proves S19.
func TestPodsThatNeverRanAreReleased(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, func(s *batchv1.JobSpec) { s.Template.Spec.NodeSelector = map[string]string{"no": "where"} })
	awaitJob(t, ns, "a pod", func(s batchv1.JobStatus) bool { return s.Active == 1 })
	if _, err := sharedClient.BatchV1().Jobs(ns).Patch(t.Context(), "j", types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitJob(t, ns, "failure", hasJobCondition(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded))
	waitFor(t, "no pod", func(context.Context) (bool, any) { n := len(podsOf(t, ns, "")); return n == 0, n })
}

// Proves S21.
func TestFinishedJobsAreDeletedAfterTheirTimeToLive(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, func(s *batchv1.JobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](1) }, "true")
	awaitJob(t, ns, "completion", hasJobCondition(batchv1.JobComplete, ""))
	waitFor(t, "the job to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.BatchV1().Jobs(ns).Get(ctx, "j", metav1.GetOptions{}))
	})
	waitFor(t, "its pods to go", func(context.Context) (bool, any) { n := len(podsOf(t, ns, "")); return n == 0, n })
}

func TestPodsOfDeletedJobsAreReleased(t *testing.T) { // Proves S20.
	ns := createNamespace(t)
	for range 2 { // the second job has the name of the first
		startJob(t, ns, nil, "sleep")
		waitFor(t, "a pod of the job", func(context.Context) (bool, any) { return len(podsOf(t, ns, "")) > 0, nil })
		background := metav1.DeletePropagationBackground
		if err := sharedClient.BatchV1().Jobs(ns).Delete(t.Context(), "j",
			metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all pods to go",
		func(context.Context) (bool, any) { pods := podsOf(t, ns, ""); return len(pods) == 0, len(pods) })
}

// A pod that no longer belongs to a job, because it was orphaned or its labels were changed, loses the job's finalizer.
// A pod that a job adopts is counted.
// Proves S19.
func TestReleasedPodsHaveNoFinalizer(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, nil)
	waitFor(t, "a pod that waits to be counted", func(context.Context) (bool, any) {
		pods := podsOf(t, ns, "")
		return len(pods) == 1 && len(pods[0].Finalizers) == 1, pods
	})
	stray := podsOf(t, ns, "")[0].Name
	if _, err := sharedClient.CoreV1().Pods(ns).Patch(t.Context(), stray, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the stray to be let go", func(ctx context.Context) (bool, any) {
		p := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(ctx, stray, metav1.GetOptions{}))
		return len(p.OwnerReferences) == 0 && len(p.Finalizers) == 0, p.ObjectMeta
	})
	waitFor(t, "another pod in its place", func(context.Context) (bool, any) {
		return len(podsOf(t, ns, "")) == 2, nil
	})
	if err := sharedClient.BatchV1().Jobs(ns).Delete(t.Context(), "j",
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the job to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.BatchV1().Jobs(ns).Get(ctx, "j", metav1.GetOptions{}))
	})
	awaitNoFinalizers(t, ns)
	if pods := podsOf(t, ns, ""); len(pods) != 2 || len(pods[0].OwnerReferences)+len(pods[1].OwnerReferences) != 0 {
		t.Errorf("the orphans: %v", pods)
	}
}

// The job controller ignores a job that another controller manages.
// Proves S19.
func TestJobsOfOtherControllersAreIgnored(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, func(j *batchv1.JobSpec) { j.ManagedBy = ptr.To("example.com/queue") })
	holdFor(t, "the job of another controller was run", func(ctx context.Context) (bool, any) {
		j := must[*batchv1.Job](t)(sharedClient.BatchV1().Jobs(ns).Get(ctx, "j", metav1.GetOptions{}))
		return len(podsOf(t, ns, "")) == 0 && j.Status.StartTime == nil, j.Status
	})
}
