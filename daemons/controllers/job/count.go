package job

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// tally is what counting found besides the status.
type tally struct {
	release map[types.UID]bool  // pods that end uncounted
	held    map[int]*corev1.Pod // by index: the failed pod that says how often it failed, until its replacement says so
	failing string              // the podFailurePolicy has the job fail, for this reason
	// ruled has the failed pods that a rule of the podFailurePolicy is about and that are now counted, or released.
	ruled map[types.UID]batchv1.PodFailurePolicyAction
}

// count moves finished pods into the status: first by UID, and once their finalizer is off, into the numbers.
func count(job *batchv1.Job, pods []*corev1.Pod) tally {
	t := tally{release: map[types.UID]bool{}, held: map[int]*corev1.Pod{}, ruled: map[types.UID]batchv1.PodFailurePolicyAction{}}
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
	next := &batchv1.UncountedTerminatedPods{}
	for _, uid := range u.Succeeded {
		if here[uid] {
			next.Succeeded = append(next.Succeeded, uid)
		} else if !indexed(job) {
			job.Status.Succeeded++
		}
	}
	for _, uid := range u.Failed {
		if here[uid] {
			next.Failed = append(next.Failed, uid)
		} else {
			job.Status.Failed++
		}
	}
	var failures []*corev1.Pod
	done := map[int]bool{}
	if indexed(job) {
		done = completed(job)
	}
	for _, pod := range pods {
		if !tracked(pod) || slices.Contains(next.Succeeded, pod.UID) || slices.Contains(next.Failed, pod.UID) {
			continue
		}
		i, hasIndex := index(job, pod)
		switch {
		case forgiven(job, pod):
			t.release[pod.UID] = true
		case !failed(job, pod) && pod.Status.Phase != corev1.PodSucceeded:
		case indexed(job) && !hasIndex: // of an index that the job no longer has
			t.release[pod.UID] = true
		case pod.Status.Phase == corev1.PodSucceeded:
			next.Succeeded = append(next.Succeeded, pod.UID)
			if hasIndex {
				done[i] = true
			}
		default:
			failures = append(failures, pod)
		}
	}
	if indexed(job) {
		job.Status.CompletedIndexes = formatIndexes(done)
		job.Status.Succeeded = int32(len(done))
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
		if why != "" {
			t.ruled[pod.UID] = action
		}
		if action == batchv1.PodFailurePolicyActionIgnore {
			t.release[pod.UID] = true
		} else {
			next.Failed = append(next.Failed, pod.UID)
		}
	}
	job.Status.UncountedTerminatedPods = next
	return t
}

// hold gives up the indexes that have failed too often, and keeps of each other one that failed the pod that says how often.
func (t *tally) hold(job *batchv1.Job, pods, failures []*corev1.Pod, done map[int]bool) {
	lost := givenUp(job)
	for _, pod := range failures {
		i, _ := index(job, pod)
		if done[i] {
			continue
		}
		switch action, _ := verdict(job, pod); {
		case action == batchv1.PodFailurePolicyActionFailIndex,
			action != batchv1.PodFailurePolicyActionIgnore && annotated(pod, batchv1.JobIndexFailureCountAnnotation) >= int(*job.Spec.BackoffLimitPerIndex):
			lost[i] = true
		case t.held[i] == nil || attempt(pod) > attempt(t.held[i]):
			t.held[i] = pod
		}
	}
	for _, pod := range pods {
		if i, ok := index(job, pod); ok && t.held[i] != nil && attempt(pod) > attempt(t.held[i]) {
			delete(t.held, i) // replaced
		}
	}
	for i := range lost {
		delete(t.held, i)
	}
	text := formatIndexes(lost)
	job.Status.FailedIndexes = &text
}

// retries returns the annotations of the pod that replaces one.
func retries(job *batchv1.Job, failed *corev1.Pod) map[string]string {
	counted, ignored := 0, 0
	if failed != nil {
		counted, ignored = annotated(failed, batchv1.JobIndexFailureCountAnnotation), annotated(failed, batchv1.JobIndexIgnoredFailureCountAnnotation)
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
	return annotated(pod, batchv1.JobIndexFailureCountAnnotation) + annotated(pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

func annotated(pod *corev1.Pod, key string) int {
	n, err := strconv.Atoi(pod.Annotations[key])
	if err != nil {
		return 0
	}
	return n
}

func perIndex(job *batchv1.Job) bool { return indexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// failed says whether a pod has failed. Where pods that are being deleted are replaced at once, they have failed with that.
func failed(job *batchv1.Job, pod *corev1.Pod) bool {
	replaced := pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded && !onlyFailedAreReplaced(job)
	return pod.Status.Phase == corev1.PodFailed || forced(pod) || replaced
}

// forgiven says whether a pod goes uncounted: one that never reached a node, and one
// that was stopped because the job is suspended.
func forgiven(job *batchv1.Job, pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return pod.Spec.NodeName == "" || suspended(job)
}

// forced says whether a pod was deleted without waiting for its node, which may never
// say how it ended.
func forced(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func uncounted(job *batchv1.Job, uid types.UID) bool {
	u := job.Status.UncountedTerminatedPods
	return u != nil && (slices.Contains(u.Succeeded, uid) || slices.Contains(u.Failed, uid))
}
