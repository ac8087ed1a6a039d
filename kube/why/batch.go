package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func explainJob(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	j, err := read(ctx, ref, x.clients.Kubernetes.BatchV1().Jobs(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.batch().jobFinding(ctx, j), nil
}

func jobCondition(j *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func (x batchExplainer) jobFinding(ctx context.Context, j *batchv1.Job) *finding {
	ref := refTo("Job", j)
	switch {
	case j.DeletionTimestamp != nil:
		return deletedOwner(ref, j)
	case jobCondition(j, batchv1.JobComplete) != nil:
		return healthy("is complete")
	}
	if c := jobCondition(j, batchv1.JobFailed); c != nil {
		return x.failedJob(ctx, j, c)
	}
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		return broken(ref, "does not run", "it is suspended", "spec.suspend", Remedy{Text: "Resume it.",
			Field:   "spec.suspend of " + ref.String(),
			Command: "kubectl patch " + kubectlName(ref) + ` -p '{"spec":{"suspend":false}}'`})
	}
	const state = "is not complete"
	if j.Status.Active == 0 {
		if f := x.admission().refusedCreation(ctx, ref, j, ref); f != nil {
			return f
		}
	}
	if f := x.workload().worstPod(ctx, j); f != nil {
		text := fmt.Sprintf("%d of its pods run and %d have failed", j.Status.Active, j.Status.Failed)
		return f.below(ref, state, text, "status")
	}
	if j.Status.Active == 0 {
		if f := x.schedule().stoppedDaemon(ctx, "kube-controller-manager"); f != nil {
			return f.below(ref, state, "it has no pods", "status.active")
		}
		return broken(ref, state, "it has no pods yet", "status.active", describeRemedy(ref))
	}
	return healthy("runs with %s", count(j.Status.Active, "pod"))
}

// failedJob returns the finding of a job that was given up.
func (x batchExplainer) failedJob(ctx context.Context, j *batchv1.Job, c *batchv1.JobCondition) *finding {
	const state = "has failed"
	ref := refTo("Job", j)
	evidence := "status.conditions[Failed]: " + c.Reason
	again := Remedy{Text: "After the correction, create the job again; a failed job is not repeated.",
		Command: "kubectl replace --force -f FILE"}
	if c.Reason == "DeadlineExceeded" {
		f := broken(ref, state, fmt.Sprintf("it ran longer than its activeDeadlineSeconds of %d", ptrInt(
			j.Spec.ActiveDeadlineSeconds)), evidence, Remedy{Text: "Allow more time.",
			Field: "spec.activeDeadlineSeconds of " + ref.String()}, again)
		if pod := x.workload().worstPod(ctx, j); pod != nil {
			f.steps = append(f.steps, pod.steps...)
		}
		return f
	}
	text := clause(c.Message)
	if f := x.workload().worstPod(ctx, j); f != nil {
		f = f.below(ref, state, cmp.Or(text, "it has failed"), evidence)
		f.remedy(again)
		return f
	}
	if x.missesPods(j.Namespace) {
		return broken(ref, state, cmp.Or(text, c.Reason)+", and its pods could not all be read", evidence,
			mayListPods(j.Namespace), again)
	}
	return broken(ref, state, cmp.Or(text, c.Reason)+", and its pods are gone", evidence, Remedy{
		Text: "Keep failed pods, to read their logs the next time.", Field: "spec.template.spec.restartPolicy: " +
			"Never of " +
			ref.String()}, again)
}

func ptrInt(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func explainCronJob(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	c, err := read(ctx, ref, x.clients.Kubernetes.BatchV1().CronJobs(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.batch().cronJobFinding(ctx, c), nil
}

func (x batchExplainer) cronJobFinding(ctx context.Context, c *batchv1.CronJob) *finding {
	const state = "starts no jobs"
	ref := refTo("CronJob", c)
	if c.DeletionTimestamp != nil {
		return deletedOwner(ref, c)
	}
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		return broken(ref, state, "it is suspended", "spec.suspend", Remedy{Text: "Resume it.",
			Field: "spec.suspend of " + ref.String(), Command: "kubectl patch " + kubectlName(ref) +
				` -p '{"spec":{"suspend":false}}'`})
	}
	events := x.eventsOf(ctx, ref, c)
	success := findEvent(events, "SuccessfulCreate")
	e := findEvent(events, "UnknownTimeZone", "UnsupportedSchedule", "UnparseableSchedule", "InvalidSchedule",
		"TooManyMissedTimes", "MissSchedule", "FailedNeedsStart")
	if e != nil && (success == nil || EventTime(success).Before(EventTime(e))) {
		field := map[string]string{"UnknownTimeZone": "spec.timeZone",
			"TooManyMissedTimes": "spec.startingDeadlineSeconds",
			"MissSchedule":       "spec.startingDeadlineSeconds"}[e.Reason]
		return broken(ref, state, clause(e.Message), eventEvidence(e), Remedy{Text: "Correct the field.",
			Field: cmp.Or(field, "spec.schedule") + " of " + ref.String(), Command: "kubectl edit " + kubectlName(ref)})
	}
	if f := x.admission().refusedCreation(ctx, ref, c, ref); f != nil {
		f.state = state
		return f
	}
	newest := x.newestJob(ctx, c)
	if newest == nil {
		if c.Status.LastScheduleTime == nil {
			return healthy("has not been due yet; its schedule is %s", c.Spec.Schedule)
		}
		return healthy("was due at %s", c.Status.LastScheduleTime.UTC().Format("2006-01-02 15:04"))
	}
	f := x.jobFinding(ctx, newest)
	if f.isHealthy() {
		return healthy("works; its last job %s %s", newest.Name, f.state)
	}
	text := fmt.Sprintf("its last job is %s", newest.Name)
	if c.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && newest.Status.CompletionTime == nil &&
		jobCondition(newest, batchv1.JobFailed) == nil {
		return f.below(ref, state, text+", and concurrencyPolicy Forbid starts no other one before its end",
			"spec.concurrencyPolicy")
	}
	return f.below(ref, "has no successful last job", text, "status.lastScheduleTime")
}

// newestJob returns the latest job of a CronJob, or nil.
func (x batchExplainer) newestJob(ctx context.Context, c *batchv1.CronJob) *batchv1.Job {
	jobs, _ := x.jobs(ctx, c.Namespace)
	var own []*batchv1.Job
	for _, j := range jobs {
		if isOwnedBy(j, metav1.Object(c)) {
			own = append(own, j)
		}
	}
	if len(own) == 0 {
		return nil
	}
	return slices.MaxFunc(own, func(a, b *batchv1.Job) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}
