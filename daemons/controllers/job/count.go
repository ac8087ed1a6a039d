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

// tally is what counting found besides the status.
type tally struct {
	// succeeded and failed count finished pods that the status neither names nor counts yet. Succeeded pods of an
	// indexed Job are not included: the status records their indexes at once.
	succeeded, failed int32

	release map[types.UID]bool  // pods that end uncounted
	held    map[int]*corev1.Pod // by index: the failed pod that says how often it failed, until its replacement says so
	failing string              // the podFailurePolicy has the job fail, for this reason
	// ruled has the failed pods that a rule of the podFailurePolicy is about and that are now counted, or released.
	ruled map[types.UID]batchv1.PodFailurePolicyAction
}

// count moves finished pods into the status: first by UID, and once their finalizer is off, into the numbers.
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
	var ended []int // indexes
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
		case indexed(job) && !hasIndex: // of an index that the job no longer has
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

// hold gives up the indexes that have failed too often, and keeps of each other one that failed the pod that says how
// often.
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

// retries returns the annotations of the pod that replaces one.
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

// failed says whether a pod has failed. Where pods that are being deleted are replaced at once, they have failed with
// that.
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

// uncounted returns the pods that the status names and does not count yet.
func uncounted(job *batchv1.Job) sets.Set[types.UID] {
	u := job.Status.UncountedTerminatedPods
	if u == nil {
		return nil
	}
	return sets.New(slices.Concat(u.Succeeded, u.Failed)...)
}
