package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/value"
)

// validateJobStatus checks a job's status: its end is reported once, completely, and finally. Errors that the old
// status already has are ignored.
func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	before := map[string]bool{}
	for _, e := range validateJobReport(old) {
		before[e.Error()] = true
	}
	errs := slices.DeleteFunc(validateJobReport(j), func(e *field.Error) bool { return before[e.Error()] })
	path, current, previous := field.NewPath("status"), &j.Status, &old.Status
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		if hasJobCondition(old, t) && !hasJobCondition(j, t) {
			errs = append(errs, field.Invalid(path.Child("conditions"), field.OmitValueType{},
				"cannot disable the terminal "+string(t)+"=True condition"))
		}
	}
	if hasJobCondition(old, batchv1.JobSuccessCriteriaMet) && !hasJobCondition(j, batchv1.JobSuccessCriteriaMet) {
		errs = append(errs, field.Invalid(path.Child("conditions"), field.OmitValueType{},
			"cannot disable the SuccessCriteriaMet=True condition"))
	}
	if hasJobCondition(old, batchv1.JobComplete) && !hasJobCondition(old, batchv1.JobSuccessCriteriaMet) &&
		hasJobCondition(j, batchv1.JobSuccessCriteriaMet) {
		errs = append(errs, field.Invalid(path.Child("conditions"), field.OmitValueType{},
			"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"))
	}
	if current.Failed < previous.Failed {
		errs = append(errs, field.Invalid(path.Child("failed"), current.Failed, "cannot decrease the failed counter"))
	}
	if current.Succeeded < previous.Succeeded {
		errs = append(errs, field.Invalid(path.Child("succeeded"), current.Succeeded,
			"cannot decrease the succeeded counter"))
	}
	if current.CompletionTime != nil && previous.CompletionTime != nil &&
		!current.CompletionTime.Equal(previous.CompletionTime) {
		errs = append(errs, field.Invalid(path.Child("completionTime"), current.CompletionTime,
			"completionTime cannot be mutated"))
	}
	if previous.StartTime != nil && !previous.StartTime.Equal(current.StartTime) && !value.OrZero(j.Spec.Suspend) {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime cannot be removed for unsuspended job"))
	}
	return errs
}

func hasJobCondition(j *batchv1.Job, t batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions,
		func(c batchv1.JobCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue })
}

// validateJobReport returns contradictions within a job's status, or between its status and its spec.
func validateJobReport(j *batchv1.Job) field.ErrorList {
	path, s := field.NewPath("status"), &j.Status
	errs := requireNotNegativeCounts(path, namedCount{"active", int64(s.Active)},
		namedCount{"succeeded", int64(s.Succeeded)}, namedCount{"failed", int64(s.Failed)},
		namedCount{"ready", int64(value.OrZero(s.Ready))},
		namedCount{"terminating", int64(value.OrZero(s.Terminating))})
	complete, failed := hasJobCondition(j, batchv1.JobComplete), hasJobCondition(j, batchv1.JobFailed)
	failing, met := hasJobCondition(j, batchv1.JobFailureTarget), hasJobCondition(j, batchv1.JobSuccessCriteriaMet)
	for _, c := range []struct {
		wrong bool
		text  string
	}{
		{complete && failed, "cannot set Complete=True and Failed=true conditions"},
		{complete && failing, "cannot set Complete=True and FailureTarget=true conditions"},
		{failed && !failing, "cannot set Failed=True condition without the FailureTarget=true condition"},
		{complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"},
		{met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"},
		{met && failing, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"},
	} {
		if c.wrong {
			errs = append(errs, field.Invalid(path.Child("conditions"), field.OmitValueType{}, c.text))
		}
	}
	at := path.Child("completionTime")
	switch {
	case s.CompletionTime != nil && !complete:
		errs = append(errs, field.Invalid(at, s.CompletionTime,
			"cannot set completionTime when there is no Complete=True condition"))
	case s.CompletionTime == nil && complete:
		errs = append(errs, field.Required(at, "completionTime is required for Complete jobs"))
	}
	if s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		errs = append(errs, field.Invalid(at, s.CompletionTime, "completionTime cannot be set before startTime"))
	}
	if value.OrZero(s.Ready) > s.Active {
		errs = append(errs, field.Invalid(path.Child("ready"), *s.Ready, "cannot set more ready pods than active"))
	}
	errs = append(errs, validateUncountedPods(s.UncountedTerminatedPods, path.Child("uncountedTerminatedPods"))...)
	if complete || failed {
		errs = append(errs, validateFinishedStatus(s, path)...)
	}
	return append(errs, validateIndexReport(j, path)...)
}

// validateFinishedStatus checks the status of a finished job, which must have no pods left.
func validateFinishedStatus(s *batchv1.JobStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Active > 0 {
		errs = append(errs, field.Invalid(path.Child("active"), s.Active, "active>0 is invalid for finished job"))
	}
	if value.OrZero(s.Terminating) > 0 {
		errs = append(errs, field.Invalid(path.Child("terminating"), s.Terminating,
			"terminating>0 is invalid for finished job"))
	}
	if s.StartTime == nil {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime is required for finished job"))
	}
	if u := s.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		errs = append(errs, field.Invalid(path.Child("uncountedTerminatedPods"), u,
			"uncountedTerminatedPods needs to be empty for finished job"))
	}
	return errs
}

func validateUncountedPods(u *batchv1.UncountedTerminatedPods, path *field.Path) field.ErrorList {
	if u == nil {
		return nil
	}
	var errs field.ErrorList
	seen := map[types.UID]bool{}
	for _, side := range []struct {
		name string
		list []types.UID
	}{{"succeeded", u.Succeeded}, {"failed", u.Failed}} {
		for i, uid := range side.list {
			at := path.Child(side.name).Index(i)
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at, uid, "must not be empty"))
			case seen[uid]:
				errs = append(errs, field.Duplicate(at, uid))
			}
			seen[uid] = true
		}
	}
	return errs
}

// validateIndexReport checks the completed and failed indexes of a job. They have the form 0,2-4, are ascending and
// below completions, and each is either completed or failed.
func validateIndexReport(j *batchv1.Job, path *field.Path) field.ErrorList {
	s := &j.Status
	var errs field.ErrorList
	if s.CompletedIndexes != "" && value.OrZero(j.Spec.CompletionMode) != batchv1.IndexedCompletion {
		errs = append(errs, field.Invalid(path.Child("completedIndexes"), s.CompletedIndexes,
			"cannot set non-empty completedIndexes when non-indexed completion mode"))
	}
	if j.Spec.BackoffLimitPerIndex == nil && s.FailedIndexes != nil {
		errs = append(errs, field.Invalid(path.Child("failedIndexes"), *s.FailedIndexes,
			"cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
	}
	if j.Spec.Completions == nil {
		return errs
	}
	completed, err := parseIndexRanges(s.CompletedIndexes, *j.Spec.Completions)
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("completedIndexes"), s.CompletedIndexes,
			"error parsing completedIndexes: "+err.Error()))
	}
	if s.FailedIndexes == nil || j.Spec.BackoffLimitPerIndex == nil {
		return errs
	}
	failed, err := parseIndexRanges(*s.FailedIndexes, *j.Spec.Completions)
	if err != nil {
		return append(errs, field.Invalid(path.Child("failedIndexes"), *s.FailedIndexes,
			"error parsing failedIndexes: "+err.Error()))
	}
	for len(completed) > 0 && len(failed) > 0 {
		c, f := completed[0], failed[0]
		switch {
		case c[1] < f[0]:
			completed = completed[1:]
		case f[1] < c[0]:
			failed = failed[1:]
		default:
			return append(errs, field.Invalid(path.Child("failedIndexes"), *s.FailedIndexes, fmt.Sprintf(
				"failedIndexes and completedIndexes overlap at index: %d", max(c[0], f[0]))))
		}
	}
	return errs
}

// parseIndexRanges parses reported indexes. It returns the first and last index of each range.
func parseIndexRanges(text string, completions int32) ([][2]int32, error) {
	if text == "" {
		return nil, nil
	}
	var list [][2]int32
	last := int32(-1)
	number := func(word string) (int32, error) {
		n, err := strconv.ParseInt(word, 10, 32)
		switch {
		case err != nil:
			return 0, fmt.Errorf("cannot convert string to integer for index: %q", word)
		case int32(n) >= completions:
			return 0, fmt.Errorf("too large index: %q", word)
		case int32(n) <= last:
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, n)
		}
		last = int32(n)
		return last, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Split(part, "-")
		if len(words) > 2 {
			return nil, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most "+
				"two parts separated by '-'", part)
		}
		first, err := number(words[0])
		if err != nil {
			return nil, err
		}
		end := first
		if len(words) == 2 {
			if end, err = number(words[1]); err != nil {
				return nil, err
			}
		}
		list = append(list, [2]int32{first, end})
	}
	return list, nil
}
