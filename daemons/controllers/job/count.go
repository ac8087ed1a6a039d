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

// mostUncounted limits the finished pods that the status names at once. The next ones follow when these are counted.
// Without the limit, the status of a Job whose pods all finish together becomes too large to store.
const mostUncounted = 500

// tally holds the results of counting that are not part of the status.
type tally struct {
	// succeeded and failed count finished pods that the status neither names nor counts yet. Succeeded pods of an
	// indexed Job are not included: the status records their indexes at once.
	succeeded, failed int32

	release map[types.UID]bool // pods that end without being counted
	// by index: the failed pod that records how often the index failed, until its replacement records it
	held    map[int]*corev1.Pod
	failing string // why the podFailurePolicy fails the job; empty if it does not
	// ruled holds the failed pods that match a rule of the podFailurePolicy and are now counted or released.
	ruled map[types.UID]batchv1.PodFailurePolicyAction
}

// count moves finished pods into the status: first by UID, and after their finalizer is removed, into the totals.
func count(job *batchv1.Job, pods []*corev1.Pod) tally {
	t := tally{
		release: map[types.UID]bool{},
		held:    map[int]*corev1.Pod{},
		ruled:   map[types.UID]batchv1.PodFailurePolicyAction{},
	}
	here := map[types.UID]bool{}
	for _, pod := range pods {
		if tracked(pod) {
			here[pod.UID] = true
		}
	}
	u := job.Status.UncountedTerminatedPods
	if u == nil {
		u = &batchv1.UncountedTerminatedPods{}
	}
	next, named := &batchv1.UncountedTerminatedPods{}, map[types.UID]bool{}
	for _, uid := range u.Succeeded {
		if here[uid] {
			next.Succeeded, named[uid] = append(next.Succeeded, uid), true
		} else if !indexed(job) {
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
	var failures []*corev1.Pod
	full := func() bool { return len(next.Succeeded)+len(next.Failed) >= mostUncounted }
	var done intervals
	var ended []int // completion indexes
	if indexed(job) {
		done = completed(job)
	}
	for _, pod := range pods {
		if !tracked(pod) || named[pod.UID] {
			continue
		}
		i, hasIndex := index(job, pod)
		switch {
		case forgiven(job, pod):
			t.release[pod.UID] = true
		case !failed(job, pod) && pod.Status.Phase != corev1.PodSucceeded:
		case indexed(job) && !hasIndex: // its index is beyond the job's completions
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
	if indexed(job) {
		done = done.with(ended)
		job.Status.CompletedIndexes = done.String()
		job.Status.Succeeded = int32(done.count())
	}
	if perIndex(job) && !ending(job) {
		t.hold(job, pods, failures, done)
	}
	for _, pod := range failures {
		action, why := verdict(job, pod)
		if action == batchv1.PodFailurePolicyActionFailJob && t.failing == "" {
			t.failing = why
		}
		if i, _ := index(job, pod); t.held[i] == pod {
			continue
		}
		ignored := action == batchv1.PodFailurePolicyActionIgnore
		if !ignored && full() {
			t.failed++
			continue
		}
		if why != "" {
			t.ruled[pod.UID] = action
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

// hold marks the indexes that have failed too often as failed. For every other failed index it holds the pod that
// records how often the index failed.
func (t *tally) hold(job *batchv1.Job, pods, failures []*corev1.Pod, done intervals) {
	var lost []int
	for _, pod := range failures {
		i, _ := index(job, pod)
		if done.has(i) {
			continue
		}
		switch action, _ := verdict(job, pod); {
		case action == batchv1.PodFailurePolicyActionFailIndex,
			action != batchv1.PodFailurePolicyActionIgnore &&
				annotated(pod, batchv1.JobIndexFailureCountAnnotation) >= int(*job.Spec.BackoffLimitPerIndex):
			lost = append(lost, i)
		case t.held[i] == nil || attempt(pod) > attempt(t.held[i]):
			t.held[i] = pod
		}
	}
	for _, pod := range pods {
		if i, ok := index(job, pod); ok && t.held[i] != nil && attempt(pod) > attempt(t.held[i]) {
			delete(t.held, i) // replaced
		}
	}
	all := givenUp(job).with(lost)
	for i := range t.held {
		if all.has(i) {
			delete(t.held, i)
		}
	}
	text := all.String()
	job.Status.FailedIndexes = &text
}

// retries returns the annotations with the failure counts for the pod that replaces the failed one.
func retries(job *batchv1.Job, failed *corev1.Pod) map[string]string {
	counted, ignored := 0, 0
	if failed != nil {
		counted, ignored = annotated(
			failed,
			batchv1.JobIndexFailureCountAnnotation,
		), annotated(
			failed,
			batchv1.JobIndexIgnoredFailureCountAnnotation,
		)
		if action, _ := verdict(job, failed); action == batchv1.PodFailurePolicyActionIgnore {
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

func attempt(pod *corev1.Pod) int {
	return annotated(
		pod,
		batchv1.JobIndexFailureCountAnnotation,
	) + annotated(
		pod,
		batchv1.JobIndexIgnoredFailureCountAnnotation,
	)
}

// annotated returns a count that the controller stores in a pod annotation. Clients can change it, so negative values
// become 0, and values above the int32 range become the maximum.
func annotated(pod *corev1.Pod, key string) int {
	n, err := strconv.ParseInt(pod.Annotations[key], 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return int(max(n, 0))
}

func perIndex(job *batchv1.Job) bool { return indexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// failed reports whether a pod has failed. Where the job replaces pods as soon as they are being deleted, deletion
// counts as failure.
func failed(job *batchv1.Job, pod *corev1.Pod) bool {
	replaced := pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded && !onlyFailedAreReplaced(job)
	return pod.Status.Phase == corev1.PodFailed || forced(pod) || replaced
}

// forgiven reports whether a deleted pod ends without being counted: because it never reached a node, or because it was
// stopped to suspend the job.
func forgiven(job *batchv1.Job, pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return pod.Spec.NodeName == "" || suspended(job)
}

// forced reports whether a pod was deleted with a grace period of zero. Its node may never report how it ended.
func forced(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

// uncounted returns the UIDs of the pods that the status names but does not count yet.
func uncounted(job *batchv1.Job) sets.Set[types.UID] {
	u := job.Status.UncountedTerminatedPods
	if u == nil {
		return nil
	}
	return sets.New(slices.Concat(u.Succeeded, u.Failed)...)
}
