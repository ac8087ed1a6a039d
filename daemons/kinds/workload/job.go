package workload

import (
	"fmt"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func Jobs() *kind.Kind {
	return &kind.Kind{
		GVK:      batchv1.SchemeGroupVersion.WithKind("Job"),
		Resource: "jobs", Singular: "job", Categories: []string{"all"}, Namespaced: true, HasGeneration: true,
		Dependents: kind.OrphanDependents,
		New:        kind.New[batchv1.Job](), NewList: kind.New[batchv1.JobList](),
		Default:       kind.Adapt(defaultJob),
		PrepareCreate: kind.Adapt(prepareJob),
		PrepareUpdate: kind.AdaptUpdate(func(j, old *batchv1.Job) { j.Status = old.Status }),
		Warnings:      podspec.WithNameWarnings(kind.AdaptWarnings(jobWarnings)),
		Validate: kind.AdaptValidate(func(j *batchv1.Job) field.ErrorList {
			return append(append(validateJob(j), validateGeneratedSelector(j)...), validateIndexedName(j)...)
		}), ValidateUpdate: kind.AdaptValidateUpdate(validateJobUpdate),
		Fields: kind.AdaptFields(func(j *batchv1.Job) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
		}),
		Columns: kind.NewColumns("Status", "Completions", "Duration", "Age", "Containers*", "Images*", "Selector*"),
		Row:     kind.AdaptRow(jobRow),
		Status:  kind.NewStatus(func(to, from *batchv1.Job) { to.Status = *from.Status.DeepCopy() }, validateJobStatus),
	}
}

func defaultJob(j *batchv1.Job) {
	spec := &j.Spec
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = new(int32(1))
	}
	value.SetDefault(&spec.Parallelism, 1)
	if spec.BackoffLimit == nil {
		spec.BackoffLimit = new(int32(6))
		if spec.BackoffLimitPerIndex != nil {
			spec.BackoffLimit = new(int32(math.MaxInt32))
		}
	}
	value.SetDefault(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	value.SetDefault(&spec.Suspend, false)
	value.SetDefault(&spec.ManualSelector, false)
	if spec.PodReplacementPolicy == nil {
		spec.PodReplacementPolicy = new(batchv1.TerminatingOrFailed)
		if spec.PodFailurePolicy != nil {
			spec.PodReplacementPolicy = new(batchv1.Failed)
		}
	}
	if spec.PodFailurePolicy != nil {
		for i := range spec.PodFailurePolicy.Rules {
			for k := range spec.PodFailurePolicy.Rules[i].OnPodConditions {
				value.SetEmpty(&spec.PodFailurePolicy.Rules[i].OnPodConditions[k].Status, corev1.ConditionTrue)
			}
		}
	}
	if len(j.Labels) == 0 && len(spec.Template.Labels) > 0 {
		j.Labels = map[string]string{}
		for k, v := range spec.Template.Labels {
			j.Labels[k] = v
		}
	}
	podspec.DefaultTemplate(&spec.Template)
}

// prepareJob generates the selector from the job's UID, so that two jobs never select the same pods. It labels the
// template to match.
func prepareJob(j *batchv1.Job) {
	j.Status = batchv1.JobStatus{}
	if value.OrZero(j.Spec.ManualSelector) {
		return
	}
	t := &j.Spec.Template
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	for key, v := range map[string]string{
		"controller-uid": string(j.UID), batchv1.ControllerUidLabel: string(j.UID),
		"job-name": j.Name, batchv1.JobNameLabel: j.Name,
	} {
		if t.Labels[key] == "" {
			t.Labels[key] = v
		}
	}
	value.SetDefault(&j.Spec.Selector, metav1.LabelSelector{})
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] == "" {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
	defaultJob(j) // a job without labels gets those of its pods
}

func jobRow(j *batchv1.Job) []any {
	completions := fmt.Sprintf("%d/1", j.Status.Succeeded)
	if j.Spec.Completions != nil {
		completions = fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	} else if p := value.OrZero(j.Spec.Parallelism); p > 1 {
		completions = fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, p)
	}
	took := ""
	if start, end := j.Status.StartTime, j.Status.CompletionTime; start != nil && end != nil {
		took = duration.HumanDuration(end.Sub(start.Time))
	} else if start != nil {
		took = duration.HumanDuration(time.Since(start.Time))
	}
	spec := &j.Spec.Template.Spec
	return []any{
		jobState(j), completions, took, cell.Age(j.CreationTimestamp),
		cell.ContainerNames(spec), cell.ContainerImages(spec), cell.SelectorText(j.Spec.Selector),
	}
}

func jobState(j *batchv1.Job) string {
	hasCondition := func(t batchv1.JobConditionType) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == t {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	switch {
	case hasCondition(batchv1.JobComplete):
		return "Complete"
	case hasCondition(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case hasCondition(batchv1.JobSuspended):
		return "Suspended"
	case hasCondition(batchv1.JobFailureTarget):
		return "FailureTarget"
	case hasCondition(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	default:
		return "Running"
	}
}

func CronJobs() *kind.Kind {
	return &kind.Kind{
		GVK:      batchv1.SchemeGroupVersion.WithKind("CronJob"),
		Resource: "cronjobs", Singular: "cronjob", ShortNames: []string{"cj"}, Categories: []string{"all"},
		Namespaced: true, HasGeneration: true,
		New: kind.New[batchv1.CronJob](), NewList: kind.New[batchv1.CronJobList](),
		Default:       kind.Adapt(defaultCronJob),
		PrepareCreate: kind.Adapt(func(c *batchv1.CronJob) { c.Status = batchv1.CronJobStatus{} }),
		PrepareUpdate: kind.AdaptUpdate(func(c, old *batchv1.CronJob) { c.Status = old.Status }),
		NameErrors:    cronJobNameErrors,
		Warnings:      podspec.WithNameWarnings(kind.AdaptWarnings(cronJobWarnings)),
		Validate:      kind.AdaptValidate(validateCronJob),
		Columns: kind.NewColumns("Schedule", "Timezone", "Suspend", "Active:integer", "Last Schedule", "Age",
			"Containers*", "Images*", "Selector*"),
		Row: kind.AdaptRow(func(c *batchv1.CronJob) []any {
			last, zone := cell.NoneText, cell.NoneText
			if c.Status.LastScheduleTime != nil {
				last = cell.Age(*c.Status.LastScheduleTime)
			}
			if c.Spec.TimeZone != nil {
				zone = *c.Spec.TimeZone
			}
			suspend := "<unset>"
			if c.Spec.Suspend != nil {
				suspend = map[bool]string{true: "True", false: "False"}[*c.Spec.Suspend]
			}
			spec := &c.Spec.JobTemplate.Spec.Template.Spec
			return []any{
				c.Spec.Schedule, zone, suspend, int64(len(c.Status.Active)), last, cell.Age(c.CreationTimestamp),
				cell.ContainerNames(spec), cell.ContainerImages(spec),
				cell.SelectorText(c.Spec.JobTemplate.Spec.Selector),
			}
		}),
		Status: kind.NewStatus(func(to, from *batchv1.CronJob) { to.Status = *from.Status.DeepCopy() }),
	}
}

// cronJobNameErrors leaves room for the time that is appended for a job's name.
func cronJobNameErrors(name string, prefix bool) []string {
	const room = 52
	msgs := validate.DNSSubdomainNameErrors(name, prefix)
	if len(name) > room {
		msgs = append(msgs, "must be no more than "+strconv.Itoa(room)+" characters")
	}
	return msgs
}

func defaultCronJob(c *batchv1.CronJob) {
	value.SetEmpty(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	value.SetDefault(&c.Spec.Suspend, false)
	value.SetDefault(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	value.SetDefault(&c.Spec.FailedJobsHistoryLimit, 1)
	podspec.DefaultTemplate(&c.Spec.JobTemplate.Spec.Template)
}
