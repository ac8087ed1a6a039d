package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func newTestCluster(indexed bool, change func(*batchv1.JobSpec)) *testCluster {
	w := &testCluster{
		now: time.Unix(1_000_000, 0),
		job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n"}, Spec: batchv1.JobSpec{
			Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](3), BackoffLimit: ptr.To[int32](6)}},
	}
	if indexed {
		w.job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	}
	if change != nil {
		change(&w.job.Spec)
	}
	return w
}

// endPods ends the running pods of an index (-1 for all) with an exit code.
func (w *testCluster) endPods(i int, code int32) {
	for _, pod := range w.pods {
		if n, ok := indexOf(w.job, pod); pod.Status.Phase != corev1.PodRunning || i >= 0 && (!ok || n != i) {
			continue
		}
		pod.Status.Phase = corev1.PodFailed
		if code == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, FinishedAt: metav1.NewTime(w.now)}}},
		}
	}
}

func (w *testCluster) syncUntilStable() {
	for range 6 {
		w.sync()
	}
}

// conditionText returns the job's true conditions with their reasons.
func (w *testCluster) conditionText() string {
	var out []string
	for _, c := range w.job.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			out = append(out, string(c.Type)+"/"+c.Reason)
		}
	}
	return strings.Join(out, " ")
}

func (w *testCluster) running() (n int) {
	for _, pod := range w.pods {
		if pod.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

func onExit(
	action batchv1.PodFailurePolicyAction,
	operator batchv1.PodFailurePolicyOnExitCodesOperator,
	codes ...int32,
) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{
		Action:      action,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: operator, Values: codes},
	}
}

// Proves S19.
//
//style:long a table of jobs, with the condition of each
func TestJobEndConditions(t *testing.T) {
	const in, notIn = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	rules := func(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) {
			s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules}
			s.PodReplacementPolicy = ptr.To(batchv1.Failed)
			s.BackoffLimit = ptr.To[int32](0)
		}
	}
	perIndex := func(limit int32, more func(*batchv1.JobSpec)) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) {
			if more != nil {
				more(s)
			}
			s.BackoffLimitPerIndex, s.BackoffLimit = &limit, ptr.To[int32](1<<30)
		}
	}
	success := func(rules ...batchv1.SuccessPolicyRule) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) { s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: rules} }
	}
	for name, c := range map[string]struct {
		indexed   bool
		change    func(*batchv1.JobSpec)
		do        func(*testCluster)
		text      string
		message   string
		failed    int32
		succeeded int32
		lost      string // failedIndexes
		running   int
	}{
		"all succeed": {do: func(w *testCluster) { w.endPods(-1, 0) },
			text: "SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached", succeeded: 3},
		"a code that fails the job": {change: rules(onExit(batchv1.PodFailurePolicyActionFailJob, in, 42)),
			do: func(w *testCluster) { w.endPods(-1, 42) }, text: "FailureTarget/PodFailurePolicy " +
				"Failed/PodFailurePolicy", failed: 3, message: "Container c for pod n/ failed with exit code 42 " +
				"matching FailJob rule at index 0"},
		"a code outside of a list": {change: rules(onExit(batchv1.PodFailurePolicyActionIgnore, notIn, 42)),
			do: func(w *testCluster) { w.endPods(-1, 42) }, text: "FailureTarget/BackoffLimitExceeded " +
				"Failed/BackoffLimitExceeded", failed: 3},
		"a code that is ignored": {change: rules(onExit(batchv1.PodFailurePolicyActionIgnore, in, 42)),
			do: func(w *testCluster) { w.endPods(-1, 42) }, running: 3},
		"the first rule that matches": {change: rules(onExit(batchv1.PodFailurePolicyActionIgnore, in, 42),
			onExit(batchv1.PodFailurePolicyActionFailJob, in, 42)), do: func(w *testCluster) { w.endPods(-1, 42) },
			running: 3},
		"a disruption that is ignored": {change: rules(batchv1.PodFailurePolicyRule{
			Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget,
				Status: corev1.ConditionTrue}}}), do: func(w *testCluster) {
			for _, pod := range w.pods {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget,
					Status: corev1.ConditionTrue}}
			}
			w.endPods(-1, 137)
		}, running: 3},
		"an index that fails once": {indexed: true, change: perIndex(1, nil),
			do:      func(w *testCluster) { w.endPods(1, 1) },
			running: 3, failed: 1},
		"an index that fails too often": {indexed: true, change: perIndex(1, nil),
			do: func(w *testCluster) { w.endPods(1, 1); w.syncUntilStable(); w.endPods(1, 1) }, running: 2, failed: 2,
			lost: "1"},
		"the others succeed": {indexed: true, change: perIndex(0, nil),
			do:   func(w *testCluster) { w.endPods(1, 1); w.syncUntilStable(); w.endPods(-1, 0) },
			text: "FailureTarget/FailedIndexes Failed/FailedIndexes", message: "Job has failed " +
				"indexes", failed: 1, succeeded: 2, lost: "1"},
		"more indexes fail than may": {indexed: true,
			change: perIndex(0, func(s *batchv1.JobSpec) { s.MaxFailedIndexes = ptr.To[int32](0) }),
			do:     func(w *testCluster) { w.endPods(1, 1) },
			text:   "FailureTarget/MaxFailedIndexesExceeded Failed/MaxFailedIndexesExceeded", failed: 1, lost: "1"},
		"an index that is given up by a rule": {indexed: true,
			change: perIndex(5, rules(onExit(batchv1.PodFailurePolicyActionFailIndex, in, 9))),
			do:     func(w *testCluster) { w.endPods(2, 9) }, running: 2, failed: 1, lost: "2"},
		"ignored failures of an index": {indexed: true,
			change: perIndex(0, rules(onExit(batchv1.PodFailurePolicyActionIgnore, in, 9))),
			do:     func(w *testCluster) { w.endPods(2, 9) }, running: 3},
		"ignored failures of an index are none of the job's": {indexed: true, change: func(s *batchv1.JobSpec) {
			perIndex(0, rules(onExit(batchv1.PodFailurePolicyActionIgnore, in, 9)))(s)
			s.BackoffLimit = ptr.To[int32](0)
		}, do: func(w *testCluster) { w.endPods(2, 9) }, running: 3},
		"enough indexes": {indexed: true, change: success(batchv1.SuccessPolicyRule{SucceededCount: ptr.To[int32](1)}),
			do:   func(w *testCluster) { w.endPods(1, 0) },
			text: "SuccessCriteriaMet/SuccessPolicy Complete/SuccessPolicy", message: "Matched rules at index " +
				"0", succeeded: 1},
		"the leader": {indexed: true,
			change: success(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("2")},
				batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("0")}), do: func(w *testCluster) { w.endPods(0, 0) },
			text: "SuccessCriteriaMet/SuccessPolicy Complete/SuccessPolicy", message: "Matched rules at index " +
				"1", succeeded: 1},
		"too few of those that matter": {indexed: true,
			change: success(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("0-1"),
				SucceededCount: ptr.To[int32](2)}), do: func(w *testCluster) { w.endPods(0, 0); w.endPods(2, 0) },
			succeeded: 2,
			running:   1},
		"made smaller": {indexed: true, do: func(w *testCluster) {
			w.endPods(2, 0)
			w.syncUntilStable()
			w.job.Spec.Completions, w.job.Spec.Parallelism = ptr.To[int32](1), ptr.To[int32](1)
		}, running: 1},
		"made larger": {indexed: true, do: func(w *testCluster) {
			w.endPods(0, 0)
			w.syncUntilStable()
			w.job.Spec.Completions, w.job.Spec.Parallelism = ptr.To[int32](5), ptr.To[int32](5)
		}, running: 4, succeeded: 1},
		"suspended": {do: func(w *testCluster) { w.job.Spec.Suspend = ptr.To(true) }, text: "Suspended/JobSuspended"},
		"resumed": {do: func(w *testCluster) {
			w.job.Spec.Suspend = ptr.To(true)
			w.syncUntilStable()
			w.job.Spec.Suspend = ptr.To(false)
		}, running: 3},
		"workers that end well when suspended": {change: func(s *batchv1.JobSpec) { s.Completions = nil },
			do:   func(w *testCluster) { w.job.Spec.Suspend = ptr.To(true); w.endPods(-1, 0) },
			text: "Suspended/JobSuspended", succeeded: 3},
		"suspended when all had succeeded": {do: func(w *testCluster) {
			w.endPods(-1,
				0)
			w.job.Spec.Suspend = ptr.To(true)
		},
			text: "SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached", succeeded: 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCluster(c.indexed, c.change)
			w.syncUntilStable()
			c.do(w)
			w.syncUntilStable()
			s := w.job.Status
			lost := ""
			if s.FailedIndexes != nil {
				lost = *s.FailedIndexes
			}
			if w.conditionText() != c.text || s.Failed != c.failed || s.Succeeded != c.succeeded || lost != c.lost ||
				w.running() != c.running {
				t.Errorf("says %q, failed %d, succeeded %d, lost %q, %d run; want %q, %d, %d, %q, %d",
					w.conditionText(), s.Failed, s.Succeeded, lost, w.running(), c.text, c.failed, c.succeeded, c.lost,
					c.running)
			}
			if c.message != "" &&
				!slices.ContainsFunc(s.Conditions,
					func(got batchv1.JobCondition) bool { return got.Message == c.message }) {
				t.Errorf("conditions %+v, want the message %q", s.Conditions, c.message)
			}
			if IsFinished(w.job) && slices.ContainsFunc(w.pods, isTracked) {
				t.Error("pods of a finished job wait to be counted")
			}
		})
	}
}

func TestReplacementsRecordTheFailuresOfTheirIndex(t *testing.T) {
	w := newTestCluster(true, func(s *batchv1.JobSpec) {
		s.BackoffLimitPerIndex, s.BackoffLimit = ptr.To[int32](4), ptr.To[int32](1<<30)
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{
			Rules: []batchv1.PodFailurePolicyRule{
				onExit(batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyOnExitCodesOpIn, 9),
			},
		}
	})
	var got []string
	for _, code := range []int32{1, 9, 1, 9} {
		w.syncUntilStable()
		w.endPods(1, code)
		w.syncUntilStable()
		last := w.pods[len(w.pods)-1]
		got = append(got, fmt.Sprint(last.Annotations["batch.kubernetes.io/job-index-failure-count"], "/",
			last.Annotations["batch.kubernetes.io/job-index-ignored-failure-count"]))
	}
	if text := strings.Join(got, " "); text != "1/ 1/1 2/1 2/2" {
		t.Errorf("counted and ignored failures: %s", text)
	}
	if w.job.Status.Failed != 2 {
		t.Errorf("%d failed, two were not ignored", w.job.Status.Failed)
	}
}

func TestFailuresIncreaseTheBackoff(t *testing.T) {
	for _, indexes := range []bool{false, true} {
		w := newTestCluster(indexes, func(s *batchv1.JobSpec) {
			if indexes {
				s.BackoffLimitPerIndex, s.BackoffLimit = ptr.To[int32](4), ptr.To[int32](1<<30)
			}
			s.Completions, s.Parallelism = ptr.To[int32](1), ptr.To[int32](1)
		})
		w.step = time.Nanosecond
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			w.sync()
			w.endPods(-1, 1)
			failedAt := w.now
			w.sync()
			if wait := w.lastDecision.RequeueAfter + w.lastAt.Sub(failedAt); wait.Round(time.Second) != want ||
				w.running() != 0 {
				t.Errorf("indexed %t: waits %s with %d running, want %s", indexes, wait, w.running(), want)
			}
			w.now = failedAt.Add(want)
		}
	}
}

func TestStoppingPodsAreNotReplacedWithThePolicyFailed(t *testing.T) {
	for policy, want := range map[batchv1.PodReplacementPolicy]int{batchv1.Failed: 0, batchv1.TerminatingOrFailed: 3} {
		w := newTestCluster(false, func(s *batchv1.JobSpec) { s.PodReplacementPolicy = &policy })
		w.syncUntilStable()
		for _, pod := range w.pods {
			pod.Spec.NodeName = "node"
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: w.now}, ptr.To[int64](30)
		}
		d := Decide(w.job, w.pods, w.now)
		if len(d.Create) != want || *w.job.Status.Terminating != 3 || w.job.Status.Active != 0 {
			t.Errorf("%s: %d are made, status %+v", policy, len(d.Create), w.job.Status)
		}
	}
}

// With the policy Failed, a new pod must not run beside a pod that is being deleted.
func TestDeletedPodsCountAsFailedIfTheyAreReplacedAtOnce(t *testing.T) {
	for policy, want := range map[batchv1.PodReplacementPolicy]string{
		batchv1.TerminatingOrFailed: "FailureTarget/BackoffLimitExceeded", batchv1.Failed: ""} {
		w := newTestCluster(false, func(s *batchv1.JobSpec) {
			s.Completions, s.Parallelism, s.BackoffLimit, s.PodReplacementPolicy = ptr.To[int32](1), ptr.To[int32](
				1,
			), ptr.To[int32](0), &policy
		})
		w.syncUntilStable()
		w.pods[0].Spec.NodeName = "node"
		w.pods[0].DeletionTimestamp, w.pods[0].DeletionGracePeriodSeconds = &metav1.Time{Time: w.now}, ptr.To[int64](30)
		if d := Decide(w.job, w.pods, w.now); len(d.Create) != 0 || w.conditionText() != want {
			t.Errorf("%s: %d are made, it says %q, want none and %q", policy, len(d.Create), w.conditionText(), want)
		}
	}
}

func TestResumedJobsResetTheirStartTime(t *testing.T) {
	w := newTestCluster(false, func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr.To[int64](7200) })
	w.sync()
	first := *w.job.Status.StartTime
	w.job.Spec.Suspend = ptr.To(true)
	w.syncUntilStable()
	if w.job.Status.StartTime != nil || w.running() != 0 {
		t.Errorf("suspended: %+v, %d run", w.job.Status, w.running())
	}
	w.job.Spec.Suspend = ptr.To(false)
	w.sync()
	if got := w.job.Status.StartTime; got == nil || !got.After(first.Time) || w.conditionText() != "" {
		t.Errorf("resumed at %v, begun first at %v: %s", got, first, w.conditionText())
	}
}
