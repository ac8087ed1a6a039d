package job

import (
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api"
	"clusterctl/daemons/controllers/loop"
)

// Decision holds the actions that a sync of a job requires, besides writing its status.
type Decision struct {
	Create []int // one pod each; the number is the completion index of an indexed job, else -1
	Delete []*corev1.Pod
	// Replaces holds, by index, the pods that the new ones replace.
	Replaces      map[int]*corev1.Pod
	Release       map[types.UID]bool // finished pods that are released without being counted
	MatchedByRule map[types.UID]batchv1.PodFailurePolicyAction
	RequeueAfter  time.Duration // sync again after this time; zero means that no event is due
}

// Decide updates the job's status in place and returns the actions to take.
func Decide(job *batchv1.Job, pods []*corev1.Pod, now time.Time) Decision {
	t := countFinished(job, pods)
	d := Decision{Release: t.release, MatchedByRule: t.matchedByRule}
	s := &job.Status
	seen := summarize(pods)
	var deadlineLeft time.Duration
	timed := job.Spec.ActiveDeadlineSeconds != nil && !isSuspended(job)
	if !isSuspended(job) {
		if hasCondition(s.Conditions, batchv1.JobSuspended) {
			setCondition(s, batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", now)
		}
		setStartTime(s, now)
	}
	if timed {
		deadlineLeft = s.StartTime.Add(api.Seconds(*job.Spec.ActiveDeadlineSeconds)).Sub(now)
	}
	if !isEnding(job) {
		if c, ok := endCondition(job, &seen, t, timed && deadlineLeft <= 0); ok {
			setCondition(s, c.Type, corev1.ConditionTrue, c.Reason, c.Message, now)
		}
	}
	switch {
	case isEnding(job):
		setStartTime(s, now)
		d.Delete = seen.stopAll()
		if len(t.failedByIndex) == 0 { // pods in held must be counted first
			setFinished(job, seen.terminating, now)
		}
	case isSuspended(job):
		setCondition(s, batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", now)
		s.StartTime = nil
		d.Delete = seen.stopAll()
	default:
		manage(job, &seen, t, now, &d)
		if timed && (d.RequeueAfter == 0 || deadlineLeft < d.RequeueAfter) {
			d.RequeueAfter = deadlineLeft
		}
	}
	s.Active, s.Ready, s.Terminating = int32(len(seen.active)), &seen.ready, &seen.terminating
	return d
}

// setStartTime sets the start time. A resumed job starts again.
func setStartTime(s *batchv1.JobStatus, now time.Time) {
	if s.StartTime == nil {
		s.StartTime = &metav1.Time{Time: now}
	}
}

// podSummary summarizes a job's pods.
type podSummary struct {
	active                       []*corev1.Pod
	stopping                     []*corev1.Pod // being deleted but not yet ended
	ready, terminating, restarts int32
	failures                     int // consecutive failures since the last success
	lastFailure                  time.Time
}

// stopAll returns the active pods to delete in this sync, and counts them as terminating. The others stay active.
func (v *podSummary) stopAll() []*corev1.Pod {
	out := v.active[:min(len(v.active), loop.Burst)]
	v.terminating += int32(len(out))
	v.active, v.ready = v.active[len(out):], 0
	for _, pod := range v.active {
		if isReady, _ := loop.IsReady(pod); isReady {
			v.ready++
		}
	}
	return out
}

func summarize(pods []*corev1.Pod) podSummary {
	var v podSummary
	var lastSuccess time.Time
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded {
			if t := finishedAt(pod); t.After(lastSuccess) {
				lastSuccess = t
			}
		}
	}
	for _, pod := range pods {
		switch {
		case loop.IsActive(pod):
			v.active = append(v.active, pod)
			if isReady, _ := loop.IsReady(pod); isReady {
				v.ready++
			}
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				v.restarts += c.RestartCount
			}
		case pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded &&
			pod.Status.Phase != corev1.PodFailed:
			if !isForceDeleted(pod) && pod.Spec.NodeName != "" {
				v.terminating++
				v.stopping = append(v.stopping, pod)
			}
		case pod.Status.Phase == corev1.PodFailed:
			if t := finishedAt(pod); t.After(lastSuccess) {
				v.failures++
				if t.After(v.lastFailure) {
					v.lastFailure = t
				}
			}
		}
	}
	return v
}

// endCondition returns the condition that decides how the job ends, if its end is decided.
func endCondition(job *batchv1.Job, seen *podSummary, t countResult, isLate bool) (c batchv1.JobCondition,
	decided bool) {
	s, spec := &job.Status, &job.Spec
	limit := int32(6)
	if spec.BackoffLimit != nil {
		limit = *spec.BackoffLimit
	}
	failed := s.Failed + int32(len(s.UncountedTerminatedPods.Failed)) + t.failed
	for _, pod := range t.failedByIndex {
		if action, _ := policyAction(job, pod); action != batchv1.PodFailurePolicyActionIgnore {
			failed++
		}
	}
	onFailure := spec.Template.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	var lost int
	if hasBackoffLimitPerIndex(job) {
		lost = failedIndexes(job).count()
	}
	fail := func(reason, message string) (batchv1.JobCondition, bool) {
		return batchv1.JobCondition{Type: batchv1.JobFailureTarget, Reason: reason, Message: message}, true
	}
	succeed := func(reason, message string) (batchv1.JobCondition, bool) {
		return batchv1.JobCondition{Type: batchv1.JobSuccessCriteriaMet, Reason: reason, Message: message}, true
	}
	switch {
	case t.failureReason != "":
		return fail(batchv1.JobReasonPodFailurePolicy, t.failureReason)
	case failed > limit, onFailure && seen.restarts > 0 && seen.restarts >= limit:
		return fail(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case isLate:
		return fail(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	case spec.MaxFailedIndexes != nil && lost > int(*spec.MaxFailedIndexes):
		return fail(batchv1.JobReasonMaxFailedIndexesExceeded,
			"Job has exceeded the specified maximal number of failed indexes")
	case lost > 0 && lost+int(s.Succeeded) >= int(*spec.Completions):
		return fail(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
	}
	if isIndexed(job) {
		if message, ok := successReason(job, completedIndexes(job)); ok {
			return succeed(batchv1.JobReasonSuccessPolicy, message)
		}
	}
	if hasEnough(job, succeededCount(job, t), len(seen.active)) {
		return succeed(batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	}
	return c, false
}

func succeededCount(job *batchv1.Job, t countResult) int32 {
	if isIndexed(job) {
		return job.Status.Succeeded
	}
	return job.Status.Succeeded + int32(len(job.Status.UncountedTerminatedPods.Succeeded)) + t.succeeded
}

// manage creates and deletes pods until the number that the job wants is active. One sync creates and deletes at most
// loop.Burst pods. The next sync follows when the cache shows these.
func manage(job *batchv1.Job, seen *podSummary, t countResult, now time.Time, d *Decision) {
	wanted := targetActive(job, succeededCount(job, t), len(seen.active))
	excess, rest := splitMisplaced(job, seen.active)
	if surplus := len(rest) - wanted; surplus > 0 {
		together := map[string]int{}
		for _, pod := range rest {
			together[pod.Spec.NodeName]++
		}
		loop.DeletionOrder(rest, together, now)
		excess = append(excess, rest[:surplus]...)
	}
	d.Delete = excess[:min(len(excess), loop.Burst)]
	occupied := rest
	if replacesOnlyEnded(job) {
		occupied = slices.Concat(rest, seen.stopping)
	}
	room := min(wanted-len(occupied), loop.Burst)
	if room <= 0 {
		return
	}
	if hasBackoffLimitPerIndex(job) {
		before := predecessors(job, seen.stopping, t.failedByIndex)
		d.Create, d.RequeueAfter = missingIndexes(job, occupied, room, before, now)
		d.Replaces = before
	} else if wait := backoffDelay(seen.failures, seen.lastFailure, now); wait > 0 {
		d.RequeueAfter = wait
	} else {
		d.Create, _ = missingIndexes(job, occupied, room, nil, now)
	}
}

// predecessors returns, by index, the pod from which the next pod of that index takes over the failure count.
func predecessors(job *batchv1.Job, stopping []*corev1.Pod, held map[int]*corev1.Pod) map[int]*corev1.Pod {
	out := maps.Clone(held)
	for _, pod := range stopping {
		if i, ok := indexOf(job, pod); ok && (out[i] == nil || failureCount(pod) >= failureCount(out[i])) {
			out[i] = pod
		}
	}
	return out
}

// splitMisplaced splits the active pods into those to delete and the rest. A pod is deleted if its index no longer
// exists, is completed, or belongs to an older pod.
func splitMisplaced(job *batchv1.Job, active []*corev1.Pod) (unfit, rest []*corev1.Pod) {
	if !isIndexed(job) {
		return nil, slices.Clone(active)
	}
	done, taken := finishedIndexes(job), map[int]bool{}
	for _, pod := range slices.SortedStableFunc(slices.Values(active), func(a, b *corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) // the older pod stays
	}) {
		i, ok := indexOf(job, pod)
		if !ok || taken[i] || done.has(i) {
			unfit = append(unfit, pod)
		} else {
			rest = append(rest, pod)
		}
		taken[i] = true
	}
	return unfit, rest
}

// finishedIndexes returns the indexes that need no more pods because they have succeeded or failed for good.
func finishedIndexes(job *batchv1.Job) intervals {
	if hasBackoffLimitPerIndex(job) {
		return completedIndexes(job).union(failedIndexes(job))
	}
	return completedIndexes(job)
}

func isEnding(job *batchv1.Job) bool {
	return hasCondition(job.Status.Conditions, batchv1.JobFailureTarget) ||
		hasCondition(job.Status.Conditions, batchv1.JobSuccessCriteriaMet)
}

// setFinished sets the Failed or Complete condition once no pod of the job is left running and all are counted.
func setFinished(job *batchv1.Job, terminating int32, now time.Time) {
	s := &job.Status
	if u := s.UncountedTerminatedPods; terminating > 0 || len(u.Succeeded)+len(u.Failed) > 0 {
		return
	}
	for _, c := range s.Conditions {
		switch {
		case c.Type == batchv1.JobFailureTarget && c.Status == corev1.ConditionTrue:
			setCondition(s, batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message, now)
			return
		case c.Type == batchv1.JobSuccessCriteriaMet && c.Status == corev1.ConditionTrue:
			setCondition(s, batchv1.JobComplete, corev1.ConditionTrue, c.Reason, c.Message, now)
			end := metav1.NewTime(now)
			s.CompletionTime = &end
			return
		}
	}
}

func hasEnough(job *batchv1.Job, succeeded int32, active int) bool {
	if job.Spec.Completions == nil {
		// A worker that was stopped to suspend the job and exited with success has not finished the work.
		return succeeded > 0 && active == 0 && !isSuspended(job)
	}
	return succeeded >= *job.Spec.Completions
}

func targetActive(job *batchv1.Job, succeeded int32, active int) int {
	parallelism := 1
	if job.Spec.Parallelism != nil {
		parallelism = int(*job.Spec.Parallelism)
	}
	if job.Spec.Completions == nil {
		if succeeded > 0 { // one worker has completed the work: create no more
			return min(active, parallelism)
		}
		return parallelism
	}
	left := int(*job.Spec.Completions - succeeded)
	if hasBackoffLimitPerIndex(job) {
		left -= failedIndexes(job).count()
	}
	return max(0, min(parallelism, left))
}

// backoffDelay returns how long to wait before replacing a pod after consecutive failures: 10 s, doubling up to 10 min.
func backoffDelay(failed int, last, now time.Time) time.Duration {
	if failed == 0 || last.IsZero() {
		return 0
	}
	wait := 10 * time.Minute
	if failed <= 6 {
		wait = 10 * time.Second << (failed - 1)
	}
	return last.Add(wait).Sub(now)
}

// missingIndexes returns the indexes of at most n pods to create. again is how long to wait for the indexes that are
// left out because of their back-off.
func missingIndexes(
	job *batchv1.Job,
	occupied []*corev1.Pod,
	n int,
	before map[int]*corev1.Pod,
	now time.Time,
) (out []int, again time.Duration) {
	if !isIndexed(job) {
		for range n {
			out = append(out, -1)
		}
		return out, 0
	}
	var held []int
	for _, pod := range occupied {
		if i, ok := indexOf(job, pod); ok {
			held = append(held, i)
		}
	}
	finishedIndexes(job).with(held).gaps(int(*job.Spec.Completions), func(i int) bool {
		if pod := before[i]; pod != nil {
			if !isPodFinished(pod) &&
				annotationCount(pod, batchv1.JobIndexFailureCountAnnotation) >= int(*job.Spec.BackoffLimitPerIndex) {
				return true // the index is marked as failed when this pod has stopped
			}
			if wait := backoffDelay(failureCount(pod)+1, finishedAt(pod), now); wait > 0 {
				if again == 0 || wait < again {
					again = wait
				}
				return true
			}
		}
		out = append(out, i)
		return len(out) < n
	})
	return out, again
}

func isPodFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// finishedAt returns when a pod ended: the end of its last container. If no container is known to have run, it returns
// when the pod stopped being ready, or else the end of its grace period.
func finishedAt(pod *corev1.Pod) time.Time {
	if last, ok := lastEnd(pod.Status.ContainerStatuses); ok {
		return last
	}
	if ready, since := loop.IsReady(pod); !ready && !since.IsZero() {
		return since
	}
	if pod.DeletionTimestamp != nil {
		grace := int64(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = *pod.DeletionGracePeriodSeconds
		}
		return pod.DeletionTimestamp.Add(-api.Seconds(grace))
	}
	return pod.CreationTimestamp.Time
}

// lastEnd returns when the last of a pod's containers ended. ok is false if a container has not ended.
func lastEnd(containers []corev1.ContainerStatus) (last time.Time, ok bool) {
	for _, c := range containers {
		end := c.State.Terminated
		if end == nil || end.FinishedAt.IsZero() {
			return last, false
		}
		if end.FinishedAt.After(last) {
			last = end.FinishedAt.Time
		}
	}
	return last, len(containers) > 0
}

func setCondition(
	s *batchv1.JobStatus,
	kind batchv1.JobConditionType,
	value corev1.ConditionStatus,
	reason, message string,
	now time.Time,
) {
	i := slices.IndexFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind })
	c := batchv1.JobCondition{Type: kind, Status: value, Reason: reason, Message: message,
		LastProbeTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now)}
	switch {
	case i < 0:
		s.Conditions = append(s.Conditions, c)
	case s.Conditions[i].Status != value:
		s.Conditions[i] = c
	}
}
