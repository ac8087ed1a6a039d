package job

import (
	"errors"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// maxUncounted limits the finished pods that the status names at once. The next ones follow when these are counted.
// Without the limit, the status of a Job whose pods all finish together becomes too large to store.
const maxUncounted = 500

// countResult holds the results of counting that are not part of the status.
type countResult struct {
	// succeeded and failed count finished pods that the status neither names nor counts yet. Succeeded pods of an
	// indexed Job are not included: the status records their indexes at once.
	succeeded, failed int32

	release map[types.UID]bool // pods that end without being counted
	// by index: the failed pod that records how often the index failed, until its replacement records it
	failedByIndex map[int]*corev1.Pod
	failureReason string // why the podFailurePolicy fails the job; empty if it does not
	// matchedByRule holds the failed pods that match a rule of the podFailurePolicy and are now counted or released.
	matchedByRule map[types.UID]batchv1.PodFailurePolicyAction
}

// countFinished moves finished pods into the status: first by UID, and after their finalizer is removed, into the
// totals.
func countFinished(job *batchv1.Job, pods []*corev1.Pod) countResult {
	t := countResult{
		release:       map[types.UID]bool{},
		failedByIndex: map[int]*corev1.Pod{},
		matchedByRule: map[types.UID]batchv1.PodFailurePolicyAction{},
	}
	next, named := countReleased(job, pods)
	var failures []*corev1.Pod
	full := func() bool { return len(next.Succeeded)+len(next.Failed) >= maxUncounted }
	var done intervals
	var ended []int // completion indexes
	if isIndexed(job) {
		done = completedIndexes(job)
	}
	for _, pod := range pods {
		if !isTracked(pod) || named[pod.UID] {
			continue
		}
		i, hasIndex := indexOf(job, pod)
		switch {
		case endsUncounted(job, pod):
			t.release[pod.UID] = true
		case !hasFailed(job, pod) && pod.Status.Phase != corev1.PodSucceeded:
		case isIndexed(job) && !hasIndex: // its index is beyond the job's completions
			t.release[pod.UID] = true
		case pod.Status.Phase == corev1.PodSucceeded:
			if hasIndex {
				ended = append(ended, i)
			}
			switch {
			case !full():
				next.Succeeded = append(next.Succeeded, pod.UID)
			case !hasIndex:
				t.succeeded++
			}
		default:
			failures = append(failures, pod)
		}
	}
	if isIndexed(job) {
		done = done.with(ended)
		job.Status.CompletedIndexes = done.String()
		job.Status.Succeeded = int32(done.count())
	}
	if hasBackoffLimitPerIndex(job) && !isEnding(job) {
		t.markFailedIndexes(job, pods, failures, done)
	}
	for _, pod := range failures {
		action, reason := policyAction(job, pod)
		if action == batchv1.PodFailurePolicyActionFailJob && t.failureReason == "" {
			t.failureReason = reason
		}
		if i, _ := indexOf(job, pod); t.failedByIndex[i] == pod {
			continue
		}
		ignored := action == batchv1.PodFailurePolicyActionIgnore
		if !ignored && full() {
			t.failed++
			continue
		}
		if reason != "" {
			t.matchedByRule[pod.UID] = action
		}
		if ignored {
			t.release[pod.UID] = true
		} else {
			next.Failed = append(next.Failed, pod.UID)
		}
	}
	job.Status.UncountedTerminatedPods = next
	return t
}

// countReleased adds the pods whose finalizer was removed to the totals. It returns the pods that still have it, also
// as a set.
func countReleased(job *batchv1.Job, pods []*corev1.Pod) (
	next *batchv1.UncountedTerminatedPods, named map[types.UID]bool) {
	here := map[types.UID]bool{}
	for _, pod := range pods {
		if isTracked(pod) {
			here[pod.UID] = true
		}
	}
	u := job.Status.UncountedTerminatedPods
	if u == nil {
		u = &batchv1.UncountedTerminatedPods{}
	}
	next, named = &batchv1.UncountedTerminatedPods{}, map[types.UID]bool{}
	for _, uid := range u.Succeeded {
		if here[uid] {
			next.Succeeded, named[uid] = append(next.Succeeded, uid), true
		} else if !isIndexed(job) {
			job.Status.Succeeded++
		}
	}
	for _, uid := range u.Failed {
		if here[uid] {
			next.Failed, named[uid] = append(next.Failed, uid), true
		} else {
			job.Status.Failed++
		}
	}
	return next, named
}

// markFailedIndexes marks the indexes that have failed too often as failed. For every other failed index it holds the
// pod that records how often the index failed.
func (t *countResult) markFailedIndexes(job *batchv1.Job, pods, failures []*corev1.Pod, done intervals) {
	var lost []int
	for _, pod := range failures {
		i, _ := indexOf(job, pod)
		if done.has(i) {
			continue
		}
		switch action, _ := policyAction(job, pod); {
		case action == batchv1.PodFailurePolicyActionFailIndex,
			action != batchv1.PodFailurePolicyActionIgnore &&
				annotationCount(pod, batchv1.JobIndexFailureCountAnnotation) >= int(*job.Spec.BackoffLimitPerIndex):
			lost = append(lost, i)
		case t.failedByIndex[i] == nil || failureCount(pod) > failureCount(t.failedByIndex[i]):
			t.failedByIndex[i] = pod
		}
	}
	for _, pod := range pods {
		if i, ok := indexOf(job, pod); ok && t.failedByIndex[i] != nil &&
			failureCount(pod) > failureCount(t.failedByIndex[i]) {
			delete(t.failedByIndex, i) // replaced
		}
	}
	all := failedIndexes(job).with(lost)
	for i := range t.failedByIndex {
		if all.has(i) {
			delete(t.failedByIndex, i)
		}
	}
	text := all.String()
	job.Status.FailedIndexes = &text
}

// failureAnnotations returns the annotations with the failure counts for the pod that replaces the failed one.
func failureAnnotations(job *batchv1.Job, failed *corev1.Pod) map[string]string {
	counted, ignored := 0, 0
	if failed != nil {
		counted, ignored = annotationCount(failed, batchv1.JobIndexFailureCountAnnotation), annotationCount(failed,
			batchv1.JobIndexIgnoredFailureCountAnnotation)
		if action, _ := policyAction(job, failed); action == batchv1.PodFailurePolicyActionIgnore {
			ignored++
		} else {
			counted++
		}
	}
	out := map[string]string{batchv1.JobIndexFailureCountAnnotation: strconv.Itoa(counted)}
	if ignored > 0 {
		out[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(ignored)
	}
	return out
}

func failureCount(pod *corev1.Pod) int {
	return annotationCount(pod, batchv1.JobIndexFailureCountAnnotation) + annotationCount(pod,
		batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// annotationCount returns a count that the controller stores in a pod annotation. Clients can change it, so negative
// values become 0, and values above the int32 range become the maximum.
func annotationCount(pod *corev1.Pod, key string) int {
	n, err := strconv.ParseInt(pod.Annotations[key], 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return int(max(n, 0))
}

func hasBackoffLimitPerIndex(job *batchv1.Job) bool {
	return isIndexed(job) && job.Spec.BackoffLimitPerIndex != nil
}

// hasFailed reports whether a pod has failed. Where the job replaces pods as soon as they are being deleted, deletion
// counts as failure.
func hasFailed(job *batchv1.Job, pod *corev1.Pod) bool {
	replaced := pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded && !replacesOnlyEnded(job)
	return pod.Status.Phase == corev1.PodFailed || isForceDeleted(pod) || replaced
}

// endsUncounted reports whether a deleted pod ends without being counted: because it never reached a node, or because
// it was stopped to suspend the job.
func endsUncounted(job *batchv1.Job, pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return pod.Spec.NodeName == "" || isSuspended(job)
}

// isForceDeleted reports whether a pod was deleted with a grace period of zero. Its node may never report how it ended.
func isForceDeleted(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

// uncountedUIDs returns the UIDs of the pods that the status names but does not count yet.
func uncountedUIDs(job *batchv1.Job) sets.Set[types.UID] {
	u := job.Status.UncountedTerminatedPods
	if u == nil {
		return nil
	}
	return sets.New(slices.Concat(u.Succeeded, u.Failed)...)
}
