package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/controllers/loop"
)

// counts holds the metrics of jobs, under upstream's names.
type counts struct {
	duration, expired                                                        *prometheus.HistogramVec
	syncs, finished, pods, finalizers, creations, external, handled, indexes *prometheus.CounterVec
}

func newCounts(c loop.Context) counts {
	const sub = "job_controller_"
	return counts{
		duration: c.Histogram(sub+"job_sync_duration_seconds", "How long it took to look at a job.",
			prometheus.ExponentialBuckets(0.004, 2, 15), "completion_mode", "result", "action"),
		syncs: c.Counter(sub+"job_syncs_total", "How often jobs were looked at.", "completion_mode", "result",
			"action"),
		finished: c.Counter(sub+"jobs_finished_total", "Jobs that have completed or failed.", "completion_mode",
			"result", "reason"),
		pods: c.Counter(sub+"job_pods_finished_total", "Pods of jobs that have finished and are counted.",
			"completion_mode", "result"),
		finalizers: c.Counter(sub+"terminated_pods_tracking_finalizer_total",
			"Finished pods that have, or no longer have, the finalizer batch.kubernetes.io/job-tracking.", "event"),
		creations: c.Counter(sub+"job_pods_creation_total", "Pods of jobs that were to be created.", "reason",
			"status"),
		external: c.Counter(sub+"jobs_by_external_controller_total", "Jobs that another controller runs.",
			"controller_name"),
		handled: c.Counter(sub+"pod_failures_handled_by_failure_policy_total",
			"Failed pods that a rule of their job's podFailurePolicy meant, by the rule's action.", "action"),
		indexes: c.Counter(sub+"job_finished_indexes_total",
			"Indexes of jobs that have succeeded or failed for good, by whose back-off limit counts.", "status",
			"backoffLimit"),
		expired: c.Histogram("ttl_after_finished_controller_job_deletion_duration_seconds",
			"How long after its time to live a finished job was deleted.", prometheus.ExponentialBuckets(0.1, 2, 14)),
	}
}

func completionMode(job *batchv1.Job) string {
	if job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion {
		return string(batchv1.IndexedCompletion)
	}
	return string(batchv1.NonIndexedCompletion)
}

func (c *counts) observeSync(mode, action string, err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "error"
	}
	c.syncs.WithLabelValues(mode, result, action).Inc()
	c.duration.WithLabelValues(mode, result, action).Observe(took.Seconds())
}

// observeStatus adds the difference between a job's status and its previous status to the metrics.
func (c *counts) observeStatus(job *batchv1.Job, before *batchv1.JobStatus) {
	mode := completionMode(job)
	c.pods.WithLabelValues(mode, "succeeded").Add(float64(max(job.Status.Succeeded-before.Succeeded, 0)))
	c.pods.WithLabelValues(mode, "failed").Add(float64(max(job.Status.Failed-before.Failed, 0)))
	if mode == string(batchv1.IndexedCompletion) {
		limit := "global"
		if hasBackoffLimitPerIndex(job) {
			limit = "perIndex"
		}
		lost := func(s *batchv1.JobStatus) int {
			if s.FailedIndexes == nil {
				return 0
			}
			return parseIndexes(*s.FailedIndexes, int(ptr.Deref(job.Spec.Completions, 0))).count()
		}
		c.indexes.WithLabelValues("succeeded", limit).Add(float64(max(job.Status.Succeeded-before.Succeeded, 0)))
		c.indexes.WithLabelValues("failed", limit).Add(float64(max(lost(&job.Status)-lost(before), 0)))
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue || hasCondition(before.Conditions, condition.Type) {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			c.finished.WithLabelValues(mode, "succeeded", condition.Reason).Inc()
		case batchv1.JobFailed:
			c.finished.WithLabelValues(mode, "failed", condition.Reason).Inc()
		}
	}
}

// observeRuled counts the failed pods that the job's podFailurePolicy has decided about and for which done reports
// true.
func (c *counts) observeRuled(by map[types.UID]batchv1.PodFailurePolicyAction, done func(types.UID) bool) {
	for uid, action := range by {
		if done(uid) {
			c.handled.WithLabelValues(string(action)).Inc()
		}
	}
}

// observeCreated counts the pods that were created for a job. err is the error of the last creation, if it failed.
func (c *counts) observeCreated(job *batchv1.Job, created int, err error) {
	reason := "new"
	if policy := job.Spec.PodReplacementPolicy; policy != nil &&
		(job.Status.Failed > 0 || job.Status.Terminating != nil && *job.Status.Terminating > 0) {
		switch *policy {
		case batchv1.TerminatingOrFailed:
			reason = "recreate_terminating_or_failed"
		case batchv1.Failed:
			reason = "recreate_failed"
		}
	}
	if created > 0 {
		c.creations.WithLabelValues(reason, "succeeded").Add(float64(created))
	}
	if err != nil {
		c.creations.WithLabelValues(reason, "failed").Inc()
	}
}

// observePod counts a finished pod that gained or lost the finalizer by which it is tracked.
func (c *counts) observePod(old, obj any) {
	waits := func(o any) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) && isTracked(pod)
	}
	switch before, after := waits(old), waits(obj); {
	case after && !before:
		c.finalizers.WithLabelValues("add").Inc()
	case before && !after:
		c.finalizers.WithLabelValues("delete").Inc()
	}
}
