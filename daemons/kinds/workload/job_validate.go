package workload

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func validateJob(j *batchv1.Job) field.ErrorList {
	return append(validateJobSpec(&j.Spec, field.NewPath("spec")), validateJobSelector(j)...)
}

// validateIndexedName requires that the hostname of an indexed job's last pod is valid: it consists of the job's name
// and the index.
func validateIndexedName(j *batchv1.Job) field.ErrorList {
	n := value.OrZero(j.Spec.Completions)
	if value.OrZero(j.Spec.CompletionMode) != batchv1.IndexedCompletion || n < 1 {
		return nil
	}
	host := j.Name + "-" + strconv.Itoa(int(n-1))
	if len(validation.IsDNS1123Label(host)) == 0 {
		return nil
	}
	return field.ErrorList{
		field.Invalid(field.NewPath("metadata", "name"), j.Name,
			"will not able to create pod with invalid DNS label: "+host),
	}
}

func validateJobSpec(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, n := range []struct {
		name string
		v    *int32
	}{
		{"parallelism", spec.Parallelism}, {"completions", spec.Completions}, {"backoffLimit", spec.BackoffLimit},
		{"ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished}, {"backoffLimitPerIndex", spec.BackoffLimitPerIndex},
	} {
		errs = append(errs, validate.NotNegative(int64(value.OrZero(n.v)), path.Child(n.name))...)
	}
	errs = append(errs, validate.NotNegative(value.OrZero(spec.ActiveDeadlineSeconds),
		path.Child("activeDeadlineSeconds"))...)
	if mode := spec.CompletionMode; mode != nil {
		errs = append(errs, validate.Supported(*mode,
			[]batchv1.CompletionMode{batchv1.IndexedCompletion, batchv1.NonIndexedCompletion},
			path.Child("completionMode"))...)
		if *mode == batchv1.IndexedCompletion && spec.Completions == nil {
			errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
		}
	}
	if spec.BackoffLimitPerIndex != nil && value.OrZero(spec.CompletionMode) != batchv1.IndexedCompletion {
		errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *spec.BackoffLimitPerIndex,
			"requires indexed completion mode"))
	}
	errs = append(errs, validateJobPolicies(spec, path)...)
	errs = append(errs, podspec.ValidateTemplate(&spec.Template, path.Child("template"))...)
	restart := path.Child("template", "spec", "restartPolicy")
	switch policy := spec.Template.Spec.RestartPolicy; {
	case policy == corev1.RestartPolicyAlways || policy == "":
		errs = append(errs, field.Required(restart, `valid values: "OnFailure", "Never"`))
	case policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever:
		errs = append(errs, validate.NotSupported(restart, policy,
			[]corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	case spec.PodFailurePolicy != nil && policy != corev1.RestartPolicyNever:
		errs = append(errs, field.Invalid(restart, policy,
			`only "Never" is supported when podFailurePolicy is specified`))
	}
	return errs
}

func validateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	errs := validateJob(j)
	path := field.NewPath("spec")
	after, before := j.Spec, old.Spec
	if value.OrZero(after.CompletionMode) != batchv1.IndexedCompletion {
		errs = append(errs, validate.Immutable(after.Completions, before.Completions, path.Child("completions"))...)
	} else if after.Completions != nil && !value.Same(after.Completions, before.Completions) &&
		*after.Completions != value.OrZero(after.Parallelism) {
		errs = append(errs, field.Invalid(path.Child("completions"), *after.Completions, "can only be modified in "+
			"tandem with spec.parallelism"))
	}
	errs = append(errs, validate.Immutable(after.Selector, before.Selector, path.Child("selector"))...)
	errs = append(errs, validate.Immutable(after.CompletionMode, before.CompletionMode,
		path.Child("completionMode"))...)
	errs = append(errs, validate.Immutable(after.PodFailurePolicy, before.PodFailurePolicy,
		path.Child("podFailurePolicy"))...)
	errs = append(errs, validate.Immutable(after.BackoffLimitPerIndex, before.BackoffLimitPerIndex,
		path.Child("backoffLimitPerIndex"))...)
	errs = append(errs, validate.Immutable(after.ManagedBy, before.ManagedBy, path.Child("managedBy"))...)
	errs = append(errs, validate.Immutable(after.SuccessPolicy, before.SuccessPolicy, path.Child("successPolicy"))...)
	newTemplate, oldTemplate := after.Template.DeepCopy(), before.Template.DeepCopy()
	if isStopped(old) {
		// Queueing controllers may still change the scheduling constraints and resources of a job that has not started.
		newTemplate.Labels, newTemplate.Annotations = oldTemplate.Labels, oldTemplate.Annotations
		newTemplate.Spec.NodeSelector = oldTemplate.Spec.NodeSelector
		newTemplate.Spec.Affinity = podspec.WithOldNodeAffinity(newTemplate.Spec.Affinity, oldTemplate.Spec.Affinity)
		newTemplate.Spec.Tolerations, newTemplate.Spec.SchedulingGates = oldTemplate.Spec.Tolerations,
			oldTemplate.Spec.SchedulingGates
		copyResources(newTemplate.Spec.InitContainers, oldTemplate.Spec.InitContainers)
		copyResources(newTemplate.Spec.Containers, oldTemplate.Spec.Containers)
	}
	if len(validate.Immutable(newTemplate, oldTemplate, nil)) > 0 {
		errs = append(errs, field.Invalid(path.Child("template"), j.Spec.Template, validate.ImmutableText))
	}
	return errs
}

// isStopped reports whether a job is suspended and has no running pods: it has not started, or its controller has
// stopped it.
func isStopped(j *batchv1.Job) bool {
	stopped := slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
	})
	return value.OrZero(j.Spec.Suspend) && j.Status.Active == 0 && (j.Status.StartTime == nil || stopped)
}

// copyResources copies the resources of other containers, so that a comparison ignores them.
func copyResources(containers, others []corev1.Container) {
	for i := range min(len(containers), len(others)) {
		containers[i].Resources = others[i].Resources
	}
}

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if c.Spec.Schedule == "" {
		errs = append(errs, field.Required(path.Child("schedule"), ""))
	} else {
		if _, err := cron.ParseStandard(trimTimeZone(c.Spec.Schedule)); err != nil {
			errs = append(errs, field.Invalid(path.Child("schedule"), c.Spec.Schedule, err.Error()))
		}
		if strings.Contains(c.Spec.Schedule, "TZ") {
			errs = append(errs, field.Invalid(path.Child("schedule"), c.Spec.Schedule, "cannot use TZ or CRON_TZ in "+
				"schedule, use timeZone field instead"))
		}
	}
	if zone := c.Spec.TimeZone; zone != nil {
		if *zone == "" {
			errs = append(errs, field.Invalid(path.Child("timeZone"), *zone,
				"timeZone must be nil or non-empty string"))
		} else if _, err := time.LoadLocation(*zone); err != nil || strings.EqualFold(*zone, "local") {
			errs = append(errs, field.Invalid(path.Child("timeZone"), *zone, "unknown time zone "+*zone))
		}
	}
	errs = append(errs, validate.NotNegative(value.OrZero(c.Spec.StartingDeadlineSeconds),
		path.Child("startingDeadlineSeconds"))...)
	errs = append(errs, validate.Supported(c.Spec.ConcurrencyPolicy, []batchv1.ConcurrencyPolicy{
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent,
	}, path.Child("concurrencyPolicy"))...)
	errs = append(errs, validate.NotNegative(int64(value.OrZero(c.Spec.SuccessfulJobsHistoryLimit)),
		path.Child("successfulJobsHistoryLimit"))...)
	errs = append(errs, validate.NotNegative(int64(value.OrZero(c.Spec.FailedJobsHistoryLimit)),
		path.Child("failedJobsHistoryLimit"))...)
	at, job := path.Child("jobTemplate", "spec"), &c.Spec.JobTemplate.Spec
	if job.Selector != nil {
		errs = append(errs, field.Invalid(at.Child("selector"), job.Selector, "`selector` will be auto-generated"))
	}
	if value.OrZero(job.ManualSelector) {
		errs = append(errs, validate.NotSupported(at.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	return append(errs, validateJobSpec(job, at)...)
}

// trimTimeZone returns a schedule without a leading time zone, which has a field of its own.
func trimTimeZone(schedule string) string {
	if zone, rest, _ := strings.Cut(schedule, " "); strings.HasPrefix(zone, "TZ=") ||
		strings.HasPrefix(zone, "CRON_TZ=") {
		return strings.TrimSpace(rest)
	}
	return schedule
}
