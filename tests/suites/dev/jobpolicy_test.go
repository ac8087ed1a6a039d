package dev

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func indexedJob(completions int32, more func(*batchv1.JobSpec)) func(*batchv1.JobSpec) {
	return func(s *batchv1.JobSpec) {
		s.Completions, s.Parallelism, s.CompletionMode = &completions, &completions, ptr.To(batchv1.IndexedCompletion)
		more(s)
	}
}

func onExit(action batchv1.PodFailurePolicyAction, code int32) *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: action,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
			Values:   []int32{code},
		}}}}
}

// Proves S19.
func TestAJobFailsAtOnceByItsPodFailurePolicy(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, func(s *batchv1.JobSpec) { s.PodFailurePolicy = onExit(batchv1.PodFailurePolicyActionFailJob, 42) },
		"exit", "42")
	s := awaitJob(t, ns, "failure", hasJobCondition(batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy))
	pod := podsOf(t, ns, "")[0]
	want := "Container c for pod " + ns + "/" + pod.Name + " failed with exit code 42 matching FailJob rule at index 0"
	if s.Failed != 1 || s.Conditions[0].Type != batchv1.JobFailureTarget || s.Conditions[1].Message != want {
		t.Errorf("status %+v, want the message %q", s, want)
	}
	awaitNoFinalizers(t, ns)
}

// Proves S19.
func TestIndexesFailIndependently(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, indexedJob(2, func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = ptr.To[int32](1) }), "false")
	s := awaitJob(t, ns, "failure", hasJobCondition(batchv1.JobFailed, batchv1.JobReasonFailedIndexes))
	if s.FailedIndexes == nil || *s.FailedIndexes != "0,1" || s.Failed != 4 || s.CompletedIndexes != "" {
		t.Errorf("status: %+v", s)
	}
	attempts := map[string]int{}
	for _, pod := range podsOf(t, ns, "") {
		attempts[pod.Annotations[batchv1.JobIndexFailureCountAnnotation]]++
	}
	if attempts["0"] != 2 || attempts["1"] != 2 {
		t.Errorf("attempts: %v", attempts)
	}
	awaitNoFinalizers(t, ns)
}

// Proves S19.
func TestIndexesFailByPolicyAndTooManyFailTheJob(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, indexedJob(3, func(s *batchv1.JobSpec) {
		s.BackoffLimitPerIndex, s.MaxFailedIndexes = ptr.To[int32](5), ptr.To[int32](1)
		s.PodFailurePolicy = onExit(batchv1.PodFailurePolicyActionFailIndex, 7)
	}), "exit", "7")
	if s := awaitJob(t, ns, "failure",
		hasJobCondition(batchv1.JobFailed, batchv1.JobReasonMaxFailedIndexesExceeded)); s.FailedIndexes == nil ||
		s.Active != 0 {
		t.Errorf("status: %+v", s)
	}
	awaitNoFinalizers(t, ns)
}

// Proves S19.
func TestAJobIsCompleteByItsSuccessPolicy(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, indexedJob(3, func(s *batchv1.JobSpec) {
		s.Parallelism = ptr.To[int32](1)
		s.SuccessPolicy = &batchv1.SuccessPolicy{
			Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("0-1"), SucceededCount: ptr.To[int32](1)}},
		}
	}), "true")
	s := awaitJob(t, ns, "completion", hasJobCondition(batchv1.JobComplete, batchv1.JobReasonSuccessPolicy))
	first := slices.IndexFunc(s.Conditions,
		func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuccessCriteriaMet })
	if first != 0 || s.Conditions[0].Message != "Matched rules at index 0" || s.CompletionTime == nil ||
		s.Succeeded == 0 {
		t.Errorf("status: %+v", s)
	}
	awaitNoFinalizers(t, ns)
}

// Proves S19.
func TestRunningIndexedJobsAreResized(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	startJob(t, ns, indexedJob(2, func(*batchv1.JobSpec) {}))
	for _, size := range []string{"2", "4", "1"} {
		must[*batchv1.Job](t)(sharedClient.BatchV1().Jobs(ns).Patch(t.Context(), "j", types.MergePatchType,
			[]byte(`{"spec":{"completions":`+size+`,"parallelism":`+size+`}}`), metav1.PatchOptions{}))
		awaitJob(t, ns, size+" pods that run",
			func(s batchv1.JobStatus) bool { return string(rune('0'+s.Active)) == size && *s.Terminating == 0 })
	}
	pods := slices.DeleteFunc(podsOf(t, ns, ""), func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(pods) != 1 || pods[0].Annotations[batchv1.JobCompletionIndexAnnotation] != "0" {
		t.Errorf("pods left: %v", pods)
	}
	if s := awaitJob(t, ns, "the status", func(batchv1.JobStatus) bool { return true }); s.Failed != 0 {
		t.Errorf("status: %+v", s)
	}
}
