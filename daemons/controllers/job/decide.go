package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/controllers/loop"
)

// Decision is what one look at a job asks for, besides its status.
type Decision struct {
	Create []int // one pod each; the number is the completion index of an indexed job, else -1
	Delete []*corev1.Pod
	Again  time.Duration // look again after this time; zero: no need
}

// count moves finished pods into the status: first by UID, and once their finalizer
// is off, into the numbers.
func count(job *batchv1.Job, pods []*corev1.Pod) {
	held := map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		if tracked(pod) {
			held[pod.UID] = pod
		}
	}
	u := job.Status.UncountedTerminatedPods
	if u == nil {
		u = &batchv1.UncountedTerminatedPods{}
	}
	next := &batchv1.UncountedTerminatedPods{}
	for _, uid := range u.Succeeded {
		if held[uid] != nil {
			next.Succeeded = append(next.Succeeded, uid)
		} else if !indexed(job) {
			job.Status.Succeeded++
		}
	}
	for _, uid := range u.Failed {
		if held[uid] != nil {
			next.Failed = append(next.Failed, uid)
		} else {
			job.Status.Failed++
		}
	}
	done := completed(job)
	for _, pod := range pods {
		if !tracked(pod) || slices.Contains(next.Succeeded, pod.UID) || slices.Contains(next.Failed, pod.UID) || forgiven(job, pod) {
			continue
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			next.Succeeded = append(next.Succeeded, pod.UID)
			if i, ok := index(pod); ok && indexed(job) {
				done[i] = true
			}
		case pod.Status.Phase == corev1.PodFailed, forced(pod):
			next.Failed = append(next.Failed, pod.UID)
		}
	}
	if indexed(job) {
		job.Status.CompletedIndexes = formatIndexes(done)
		job.Status.Succeeded = int32(len(done))
	}
	job.Status.UncountedTerminatedPods = next
}

// forgiven says whether a pod goes uncounted: one that never reached a node, and one
// that was stopped because the job is suspended.
func forgiven(job *batchv1.Job, pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return pod.Spec.NodeName == "" || job.Spec.Suspend != nil && *job.Spec.Suspend
}

// forced says whether a pod was deleted without waiting for its node, which may never
// say how it ended.
func forced(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func uncounted(job *batchv1.Job, uid types.UID) bool {
	u := job.Status.UncountedTerminatedPods
	return u != nil && (slices.Contains(u.Succeeded, uid) || slices.Contains(u.Failed, uid))
}

// Decide brings the job's status up to date, after count, and returns what to do.
func Decide(job *batchv1.Job, pods []*corev1.Pod, now time.Time) Decision {
	var d Decision
	s := &job.Status
	var active []*corev1.Pod
	var ready, terminating, restarts int32
	var lastFailure time.Time
	for _, pod := range pods {
		switch {
		case loop.Active(pod):
			active = append(active, pod)
			if is, _ := loop.Ready(pod); is {
				ready++
			}
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				restarts += c.RestartCount
			}
		case pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			if !forced(pod) && pod.Spec.NodeName != "" {
				terminating++
			}
		case pod.Status.Phase == corev1.PodFailed:
			if t := finishedAt(pod); t.After(lastFailure) {
				lastFailure = t
			}
		}
	}
	u := s.UncountedTerminatedPods
	failed := s.Failed + int32(len(u.Failed))
	succeeded := s.Succeeded
	if !indexed(job) {
		succeeded += int32(len(u.Succeeded))
	}
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		set(s, batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", now)
		s.StartTime = nil
		d.Delete = active
		s.Active, s.Ready, s.Terminating = 0, new(int32), pointer(terminating+int32(len(active)))
		return d
	}
	if hasCondition(s.Conditions, batchv1.JobSuspended) {
		set(s, batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", now)
	}
	if s.StartTime == nil {
		start := metav1.NewTime(now)
		s.StartTime = &start
	}
	limit := int32(6)
	if job.Spec.BackoffLimit != nil {
		limit = *job.Spec.BackoffLimit
	}
	onFailure := job.Spec.Template.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	var deadlineLeft time.Duration
	if seconds := job.Spec.ActiveDeadlineSeconds; seconds != nil {
		deadlineLeft = s.StartTime.Add(time.Duration(*seconds) * time.Second).Sub(now)
	}
	switch {
	case hasCondition(s.Conditions, batchv1.JobFailureTarget), hasCondition(s.Conditions, batchv1.JobSuccessCriteriaMet):
	case failed > limit || onFailure && restarts > 0 && restarts+failed > limit:
		set(s, batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", now)
	case job.Spec.ActiveDeadlineSeconds != nil && deadlineLeft <= 0:
		set(s, batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline", now)
	case enough(job, succeeded, len(active)):
		set(s, batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods", now)
	}
	ending := hasCondition(s.Conditions, batchv1.JobFailureTarget) || hasCondition(s.Conditions, batchv1.JobSuccessCriteriaMet)
	if ending {
		d.Delete = active
		terminating += int32(len(active))
		active, ready = nil, 0
		finish(job, terminating, now)
	} else {
		wanted := wantedActive(job, succeeded, len(active))
		switch {
		case len(active) > wanted:
			together := map[string]int{}
			for _, pod := range active {
				together[pod.Spec.NodeName]++
			}
			loop.DeletionOrder(active, together)
			d.Delete = active[:len(active)-wanted]
		case len(active) < wanted:
			if wait := backoff(failed, lastFailure, now); wait > 0 {
				d.Again = wait
			} else {
				d.Create = missing(job, active, wanted-len(active))
			}
		}
		if deadlineLeft > 0 && (d.Again == 0 || deadlineLeft < d.Again) {
			d.Again = deadlineLeft
		}
	}
	s.Active, s.Ready, s.Terminating = int32(len(active)), &ready, &terminating
	return d
}

// finish turns what the job is heading for into its end, once no pod of it is left
// running and all are counted.
func finish(job *batchv1.Job, terminating int32, now time.Time) {
	s := &job.Status
	if u := s.UncountedTerminatedPods; terminating > 0 || len(u.Succeeded)+len(u.Failed) > 0 {
		return
	}
	for _, c := range s.Conditions {
		switch {
		case c.Type == batchv1.JobFailureTarget && c.Status == corev1.ConditionTrue:
			set(s, batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message, now)
			return
		case c.Type == batchv1.JobSuccessCriteriaMet && c.Status == corev1.ConditionTrue:
			set(s, batchv1.JobComplete, corev1.ConditionTrue, c.Reason, c.Message, now)
			end := metav1.NewTime(now)
			s.CompletionTime = &end
			return
		}
	}
}

func enough(job *batchv1.Job, succeeded int32, active int) bool {
	if job.Spec.Completions == nil {
		return succeeded > 0 && active == 0
	}
	return succeeded >= *job.Spec.Completions
}

func wantedActive(job *batchv1.Job, succeeded int32, active int) int {
	parallelism := 1
	if job.Spec.Parallelism != nil {
		parallelism = int(*job.Spec.Parallelism)
	}
	if job.Spec.Completions == nil {
		if succeeded > 0 { // a worker found the work done: no new ones
			return min(active, parallelism)
		}
		return parallelism
	}
	return min(parallelism, int(*job.Spec.Completions-succeeded))
}

// backoff is how long to wait before replacing failed pods: 10 s, doubling to 10 min.
func backoff(failed int32, last, now time.Time) time.Duration {
	if failed == 0 || last.IsZero() {
		return 0
	}
	wait := 10 * time.Minute
	if failed <= 6 {
		wait = 10 * time.Second << (failed - 1)
	}
	return last.Add(wait).Sub(now)
}

func missing(job *batchv1.Job, active []*corev1.Pod, n int) []int {
	out := make([]int, 0, n)
	if !indexed(job) {
		for range n {
			out = append(out, -1)
		}
		return out
	}
	taken := completed(job)
	for _, pod := range active {
		if i, ok := index(pod); ok {
			taken[i] = true
		}
	}
	for i := 0; len(out) < n && i < int(*job.Spec.Completions); i++ {
		if !taken[i] {
			out = append(out, i)
		}
	}
	return out
}

func newPod(job *batchv1.Job, i int) *corev1.Pod {
	pod := loop.PodFromTemplate(&job.Spec.Template, job, kind)
	pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	if i < 0 {
		return pod
	}
	text := strconv.Itoa(i)
	for _, m := range []*map[string]string{&pod.Labels, &pod.Annotations} {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[batchv1.JobCompletionIndexAnnotation] = text
	}
	pod.GenerateName = fmt.Sprintf("%s-%d-", job.Name, i)
	pod.Spec.Hostname = fmt.Sprintf("%s-%d", job.Name, i)
	env := corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"}}}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for c := range containers {
			containers[c].Env = append(containers[c].Env, env)
		}
	}
	return pod
}

func indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion && job.Spec.Completions != nil
}

func index(pod *corev1.Pod) (int, bool) {
	i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return i, err == nil
}

// completed reads "1,3-5".
func completed(job *batchv1.Job) map[int]bool {
	out := map[int]bool{}
	for part := range strings.SplitSeq(job.Status.CompletedIndexes, ",") {
		from, to, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if ranged {
			if b, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		for i := a; i <= b; i++ {
			out[i] = true
		}
	}
	return out
}

func formatIndexes(set map[int]bool) string {
	all := make([]int, 0, len(set))
	for i := range set {
		all = append(all, i)
	}
	slices.Sort(all)
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, strconv.Itoa(all[i]))
		case 1:
			parts = append(parts, strconv.Itoa(all[i]), strconv.Itoa(all[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", all[i], all[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

func finishedAt(pod *corev1.Pod) time.Time {
	last := pod.CreationTimestamp.Time
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return last
}

func set(s *batchv1.JobStatus, kind batchv1.JobConditionType, value corev1.ConditionStatus, reason, message string, now time.Time) {
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

func pointer[T any](v T) *T { return &v }
