package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/controllers/loop"
)

func TestJobMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newCounts(loop.Context{Metrics: registry})
	indexed := &batchv1.Job{
		Spec: batchv1.JobSpec{
			CompletionMode:       ptr.To(batchv1.IndexedCompletion),
			PodReplacementPolicy: ptr.To(batchv1.Failed),
		},
	}
	indexed.Status = batchv1.JobStatus{
		Succeeded: 3,
		Failed:    2,
		Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"},
		},
	}
	c.observeStatus(indexed, &batchv1.JobStatus{Succeeded: 1, Failed: 2})
	c.observeStatus(indexed, &indexed.Status) // an unchanged status counts nothing
	perIndex := &batchv1.Job{
		Spec: batchv1.JobSpec{
			CompletionMode:       ptr.To(batchv1.IndexedCompletion),
			Completions:          ptr.To[int32](9),
			BackoffLimitPerIndex: ptr.To[int32](1),
		},
	}
	perIndex.Status.FailedIndexes = ptr.To("1,3-5")
	c.observeStatus(perIndex, &batchv1.JobStatus{FailedIndexes: ptr.To("1")})
	c.observeRuled(
		map[types.UID]batchv1.PodFailurePolicyAction{
			"a": batchv1.PodFailurePolicyActionIgnore,
			"b": batchv1.PodFailurePolicyActionFailJob,
		},
		func(uid types.UID) bool { return uid == "a" },
	)
	plain := &batchv1.Job{}
	plain.Status = batchv1.JobStatus{
		Succeeded: 1,
		Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, Reason: "CompletionsReached"},
		},
	}
	c.observeStatus(plain, &batchv1.JobStatus{})
	c.observeCreated(plain, 2, nil)
	c.observeCreated(indexed, 1, errors.New("no"))
	c.observeSync("Indexed", "tracking", nil, time.Second)
	c.observeSync("Indexed", "pods_created", errors.New("no"), time.Second)
	waits := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Finalizers: []string{batchv1.JobTrackingFinalizer}},
		Status:     corev1.PodStatus{Phase: corev1.PodFailed},
	}
	running, let := waits.DeepCopy(), waits.DeepCopy()
	running.Status.Phase, let.Finalizers = corev1.PodRunning, nil
	c.observePod(nil, running)
	c.observePod(running, waits)
	c.observePod(waits, waits.DeepCopy())
	c.observePod(waits, let)
	got := formatMetrics(t, registry)
	want := []string{
		"job_finished_indexes_total global failed 0", "job_finished_indexes_total global succeeded 2",
		"job_finished_indexes_total perIndex failed 3", "job_finished_indexes_total perIndex succeeded 0",
		"job_pods_creation_total new succeeded 2", "job_pods_creation_total recreate_failed failed " +
			"1", "job_pods_creation_total recreate_failed succeeded 1",
		"job_pods_finished_total Indexed failed 0", "job_pods_finished_total Indexed succeeded " +
			"2", "job_pods_finished_total NonIndexed failed 0", "job_pods_finished_total NonIndexed succeeded 1",
		"job_sync_duration_seconds pods_created Indexed error 1", "job_sync_duration_seconds tracking Indexed " +
			"success 1",
		"job_syncs_total pods_created Indexed error 1", "job_syncs_total tracking Indexed success 1",
		"jobs_finished_total Indexed BackoffLimitExceeded failed 1", "jobs_finished_total NonIndexed " +
			"CompletionsReached succeeded 1",
		"pod_failures_handled_by_failure_policy_total Ignore 1",
		"terminated_pods_tracking_finalizer_total add 1", "terminated_pods_tracking_finalizer_total delete 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// formatMetrics returns a line for each series of the job controller.
func formatMetrics(t *testing.T, registry prometheus.Gatherer) (got []string) {
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			n := m.GetCounter().GetValue()
			if m.Histogram != nil {
				n = float64(m.Histogram.GetSampleCount())
			}
			got = append(got, fmt.Sprintf("%s %s %v", strings.TrimPrefix(f.GetName(), "job_controller_"),
				strings.Join(labels, " "), n))
		}
	}
	return got
}

// A failed pod that matches a rule counts once: when it is counted or released.
func TestPodsMatchedByARuleCountOnce(t *testing.T) {
	w := newTestCluster(false, func(s *batchv1.JobSpec) {
		const in = batchv1.PodFailurePolicyOnExitCodesOpIn
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			onExit(batchv1.PodFailurePolicyActionIgnore, in, 42), onExit(batchv1.PodFailurePolicyActionCount, in, 43)}}
	})
	w.syncUntilStable()
	for i, code := range []int32{42, 43, 1} {
		pod := w.pods[i]
		pod.Status.Phase = corev1.PodFailed
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{
				Name: "c",
				State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(w.now)},
				},
			},
		}
	}
	d := Decide(w.job, w.pods, w.now)
	if len(d.MatchedByRule) != 2 || d.MatchedByRule[w.pods[0].UID] != batchv1.PodFailurePolicyActionIgnore ||
		d.MatchedByRule[w.pods[1].UID] != batchv1.PodFailurePolicyActionCount {
		t.Errorf("rules are about %v", d.MatchedByRule)
	}
	if !d.Release[w.pods[0].UID] || d.Release[w.pods[1].UID] {
		t.Errorf("released are %v", d.Release)
	}
	w.pods[0].Finalizers = nil // its finalizer is removed
	if d = Decide(w.job, w.pods, w.now); len(d.MatchedByRule) != 0 {
		t.Errorf("then rules are about %v", d.MatchedByRule)
	}
}
