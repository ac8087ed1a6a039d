package workload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

const (
	maxJobRules      = 20 // maximum number of rules in a policy
	maxJobConditions = 20
	maxManagerLength = 63

	// maxIndexes is the maximum of parallelism and of maxFailedIndexes. For jobs with more completions and with
	// backoffLimitPerIndex, the maximum is maxParallelIndexes.
	maxIndexes         = 100000
	maxParallelIndexes = 10000
	maxIndexesInRule   = 64 * 1024
)

// validateJobPolicies checks what determines whether a job has failed or succeeded, and which controller manages it.
func validateJobPolicies(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	indexed := value.OrZero(spec.CompletionMode) == batchv1.IndexedCompletion
	var errs field.ErrorList
	if n := spec.MaxFailedIndexes; n != nil {
		at := path.Child("maxFailedIndexes")
		errs = append(errs, validate.NotNegative(int64(*n), at)...)
		switch {
		case !indexed:
			errs = append(errs, field.Invalid(at, *n, "requires indexed completion mode"))
		case spec.Completions != nil && *n > *spec.Completions:
			errs = append(errs, field.Invalid(at, *n, "must be less than or equal to completions"))
		}
		if spec.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"),
				"when maxFailedIndexes is specified"))
		}
	}
	if indexed {
		errs = append(errs, validateIndexes(spec, path)...)
	}
	if m := spec.ManagedBy; m != nil {
		at := path.Child("managedBy")
		errs = append(errs, validation.IsDomainPrefixedPath(at, *m)...)
		if len(*m) > maxManagerLength {
			errs = append(errs, field.TooLong(at, *m, maxManagerLength))
		}
	}
	if p := spec.PodReplacementPolicy; p != nil {
		policies := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
		if spec.PodFailurePolicy != nil {
			// with a podFailurePolicy, only failed pods can be replaced, since a failure is known only after the end
			policies = policies[:1]
		}
		errs = append(errs, validate.Supported(*p, policies, path.Child("podReplacementPolicy"))...)
	}
	if p := spec.PodFailurePolicy; p != nil {
		at := path.Child("podFailurePolicy", "rules")
		if len(p.Rules) > maxJobRules {
			errs = append(errs, field.TooMany(at, len(p.Rules), maxJobRules))
		}
		for i := range p.Rules {
			errs = append(errs, validateFailureRule(&p.Rules[i], spec, at.Index(i))...)
		}
	}
	if p := spec.SuccessPolicy; p != nil {
		at := path.Child("successPolicy")
		if !indexed {
			errs = append(errs, field.Invalid(at, p, "requires indexed completion mode"))
		}
		if len(p.Rules) == 0 {
			errs = append(errs, field.Required(at.Child("rules"),
				"at least one rules must be specified when the successPolicy is specified"))
		} else if len(p.Rules) > maxJobRules {
			errs = append(errs, field.TooMany(at.Child("rules"), len(p.Rules), maxJobRules))
		}
		for i := range p.Rules {
			errs = append(errs, validateSuccessRule(&p.Rules[i], spec, at.Child("rules").Index(i))...)
		}
	}
	return errs
}

// validateIndexes limits the size of an indexed job's status.
func validateIndexes(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	atOnce, failed := path.Child("parallelism"), path.Child("maxFailedIndexes")
	if n := value.OrZero(spec.Parallelism); n > maxIndexes {
		errs = append(errs, field.Invalid(atOnce, n, fmt.Sprintf(
			"must be less than or equal to %d when completion mode is Indexed", maxIndexes)))
	}
	if n := value.OrZero(spec.MaxFailedIndexes); n > maxIndexes {
		errs = append(errs, field.Invalid(failed, n, fmt.Sprintf("must be less than or equal to %d", maxIndexes)))
	}
	if value.OrZero(spec.Completions) <= maxIndexes || spec.BackoffLimitPerIndex == nil {
		return errs
	}
	if spec.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(failed, fmt.Sprintf("must be specified when completions is above %d",
			maxIndexes)))
	}
	text := fmt.Sprintf("must be less than or equal to %d when completions are above %d and used with "+
		"backoff limit per index", maxParallelIndexes, maxIndexes)
	if n := value.OrZero(spec.Parallelism); n > maxParallelIndexes {
		errs = append(errs, field.Invalid(atOnce, n, text))
	}
	if n := value.OrZero(spec.MaxFailedIndexes); n > maxParallelIndexes {
		errs = append(errs, field.Invalid(failed, n, text))
	}
	return errs
}

func validateFailureRule(r *batchv1.PodFailurePolicyRule, spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validate.Supported(r.Action, []batchv1.PodFailurePolicyAction{
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
	}, path.Child("action"))
	if r.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(path.Child("action"), r.Action,
			"requires the backoffLimitPerIndex to be set"))
	}
	switch {
	case r.OnExitCodes != nil && len(r.OnPodConditions) > 0:
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			"specifying both OnExitCodes and OnPodConditions is not supported"))
	case r.OnExitCodes == nil && len(r.OnPodConditions) == 0:
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			"specifying one of OnExitCodes and OnPodConditions is required"))
	}
	if r.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(r.OnExitCodes, &spec.Template.Spec, path.Child("onExitCodes"))...)
	}
	at := path.Child("onPodConditions")
	if len(r.OnPodConditions) > maxJobConditions {
		errs = append(errs, field.TooMany(at, len(r.OnPodConditions), maxJobConditions))
	}
	for i, c := range r.OnPodConditions {
		errs = append(errs, validate.Invalid(at.Index(i).Child("type"), string(c.Type),
			validation.IsQualifiedName(string(c.Type)))...)
		errs = append(errs, validate.Supported(c.Status, []corev1.ConditionStatus{
			corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown,
		}, at.Index(i).Child("status"))...)
	}
	return errs
}

func validateExitCodes(
	c *batchv1.PodFailurePolicyOnExitCodesRequirement,
	pod *corev1.PodSpec,
	path *field.Path,
) field.ErrorList {
	errs := validate.Supported(c.Operator, []batchv1.PodFailurePolicyOnExitCodesOperator{
		batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn,
	}, path.Child("operator"))
	if name := c.ContainerName; name != nil {
		matches := func(c corev1.Container) bool { return c.Name == *name }
		if !slices.ContainsFunc(pod.Containers, matches) && !slices.ContainsFunc(pod.InitContainers, matches) {
			errs = append(errs, field.Invalid(path.Child("containerName"), *name,
				"must be one of the container or initContainer names in the pod template"))
		}
	}
	at := path.Child("values")
	switch {
	case len(c.Values) == 0:
		return append(errs, field.Invalid(at, c.Values, "at least one value is required"))
	case len(c.Values) > podspec.MaxExitCodes:
		return append(errs, field.TooMany(at, len(c.Values), podspec.MaxExitCodes))
	}
	again := validate.MarkRepeats(c.Values)
	for i, code := range c.Values {
		switch {
		case code == 0 && c.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn:
			errs = append(errs, field.Invalid(at.Index(i), code, "must not be 0 for the In operator"))
		case again[i]:
			errs = append(errs, field.Duplicate(at.Index(i), code))
		}
	}
	if !slices.IsSorted(c.Values) {
		errs = append(errs, field.Invalid(at, c.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessRule(r *batchv1.SuccessPolicyRule, spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if r.SucceededCount == nil && r.SucceededIndexes == nil {
		return field.ErrorList{
			field.Required(path, "at least one of succeededCount or succeededIndexes must be specified"),
		}
	}
	var errs field.ErrorList
	named := int64(math.MaxInt64)
	if text := r.SucceededIndexes; text != nil {
		at := path.Child("succeededIndexes")
		if len(*text) > maxIndexesInRule {
			errs = append(errs, field.TooLong(at, *text, maxIndexesInRule))
		}
		n, message := countIndexes(*text, value.OrZero(spec.Completions))
		if message != "" {
			errs = append(errs, field.Invalid(at, *text, "error parsing succeededIndexes: "+message))
		} else {
			named = n
		}
	}
	if n := r.SucceededCount; n != nil {
		at := path.Child("succeededCount")
		errs = append(errs, validate.NotNegative(int64(*n), at)...)
		if all := spec.Completions; all != nil && *n > *all {
			errs = append(errs, field.Invalid(at, *n, fmt.Sprintf(
				"must be less than or equal to %d (the number of specified completions)", *all)))
		}
		if int64(*n) > named {
			errs = append(errs, field.Invalid(at, *n, fmt.Sprintf("must be less than or equal to %d (the "+
				"number of indexes in the specified succeededIndexes field)", named)))
		}
	}
	return errs
}

// countIndexes parses a list such as "1,3-5", which must be ascending and below completions. It returns the number of
// indexes, or an error message.
func countIndexes(text string, completions int32) (n int64, message string) {
	last := int64(-1)
	for _, part := range strings.Split(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		low, err := strconv.ParseInt(from, 10, 32)
		if err != nil {
			return 0, "cannot convert string to integer for index: \"" + from + "\""
		}
		high := low
		if ranged {
			if high, err = strconv.ParseInt(to, 10, 32); err != nil {
				return 0, "cannot convert string to integer for index: \"" + to + "\""
			}
			if high <= low {
				return 0, "non-increasing order, previous: " + from + ", current: " + to
			}
		}
		if low <= last {
			return 0, "non-increasing order, previous: " + strconv.FormatInt(last, 10) + ", current: " + from
		}
		if high >= int64(completions) || high > math.MaxInt32 {
			return 0, "too large index: \"" + strconv.FormatInt(high, 10) + "\""
		}
		last, n = high, n+high-low+1
	}
	return n, ""
}

// validateJobSelector requires the selector that is generated from the job's UID, unless the user opted for a manual
// one.
func validateJobSelector(j *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	if j.Spec.Selector == nil {
		return field.ErrorList{field.Required(path.Child("selector"), "")}
	}
	errs := metavalidation.ValidateLabelSelector(j.Spec.Selector, metavalidation.LabelSelectorValidationOptions{},
		path.Child("selector"))
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil {
		return errs
	}
	if !selector.Matches(labels.Set(j.Spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), j.Spec.Template.Labels,
			"`selector` does not match template `labels`"))
	}
	return errs
}

// validateGeneratedSelector checks a new job: its generated selector must match only its own pods.
func validateGeneratedSelector(j *batchv1.Job) field.ErrorList {
	if value.OrZero(j.Spec.ManualSelector) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec")
	own := labels.Set{
		"controller-uid": string(j.UID), batchv1.ControllerUidLabel: string(j.UID),
		"job-name": j.Name, batchv1.JobNameLabel: j.Name,
	}
	for _, key := range []string{"controller-uid", batchv1.ControllerUidLabel, "job-name", batchv1.JobNameLabel} {
		if current := j.Spec.Template.Labels[key]; current != own[key] {
			errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels").Key(key), current,
				"must be '"+own[key]+"'"))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(own) {
		errs = append(errs, field.Invalid(path.Child("selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}
