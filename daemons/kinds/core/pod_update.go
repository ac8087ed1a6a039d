package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

const podUpdateText = "pod updates may not change fields other than " +
	"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only " +
	"additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was " +
	"previously negative)"

// validatePodUpdate allows changes of images, deadlines, tolerations and scheduling gates. Everything else in a pod is
// fixed once components act on it.
func validatePodUpdate(pod, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	if len(pod.Spec.Containers) != len(old.Spec.Containers) ||
		len(pod.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return field.ErrorList{field.Forbidden(path, "pod updates may not add or remove containers")}
	}
	errs := validateMirrorUpdate(pod, old)
	for i := range pod.Spec.InitContainers {
		errs = append(errs, podspec.ValidateImage(pod.Spec.InitContainers[i].Image,
			path.Child("initContainers").Index(i).Child("image"))...)
	}
	for i := range pod.Spec.Containers {
		errs = append(errs, podspec.ValidateImage(pod.Spec.Containers[i].Image,
			path.Child("containers").Index(i).Child("image"))...)
	}
	errs = append(errs, validateDeadline(pod, old, path.Child("activeDeadlineSeconds"))...)
	errs = append(errs, validateTolerationsUpdate(pod.Spec.Tolerations, old.Spec.Tolerations,
		path.Child("tolerations"))...)
	gates := path.Child("schedulingGates")
	for i, gate := range pod.Spec.SchedulingGates {
		if !slices.Contains(old.Spec.SchedulingGates, gate) {
			errs = append(errs, field.Forbidden(gates.Index(i),
				"only deletion is allowed, but found new scheduling gate '"+gate.Name+"'"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	after, before := pod.Spec.DeepCopy(), &old.Spec
	for i := range after.Containers {
		after.Containers[i].Image = before.Containers[i].Image
	}
	for i := range after.InitContainers {
		after.InitContainers[i].Image = before.InitContainers[i].Image
	}
	after.ActiveDeadlineSeconds, after.Tolerations, after.SchedulingGates = before.ActiveDeadlineSeconds,
		before.Tolerations,
		before.SchedulingGates
	if value.OrZero(before.TerminationGracePeriodSeconds) < 0 &&
		value.OrZero(after.TerminationGracePeriodSeconds) == 1 {
		after.TerminationGracePeriodSeconds = before.TerminationGracePeriodSeconds
	}
	if len(before.SchedulingGates) > 0 {
		// The scheduling constraints of a gated pod may still be narrowed, because the scheduler has not read them yet.
		if !isNarrower(after.NodeSelector, before.NodeSelector) {
			errs = append(errs, field.Invalid(path.Child("nodeSelector"), after.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
		}
		errs = append(errs, validateNarrowerAffinity(after.Affinity, before.Affinity,
			path.Child("affinity", "nodeAffinity",
				"requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))...)
		after.NodeSelector, after.Affinity = before.NodeSelector,
			podspec.WithOldNodeAffinity(after.Affinity, before.Affinity)
	}
	if !value.Same(after, before) {
		errs = append(errs, field.Forbidden(path, podUpdateText))
	}
	return errs
}

// validateNarrowerAffinity allows requirements to be added to each required node selector term. Terms cannot be added:
// one of several terms suffices, so another term would allow more nodes.
func validateNarrowerAffinity(updated, old *corev1.Affinity, path *field.Path) field.ErrorList {
	terms := func(a *corev1.Affinity) []corev1.NodeSelectorTerm {
		if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			return nil
		}
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	now, before := terms(updated), terms(old)
	if len(before) == 0 {
		return nil
	}
	if len(now) != len(before) {
		return field.ErrorList{
			field.Invalid(path, now, "no additions/deletions to non-empty NodeSelectorTerms list are allowed"),
		}
	}
	var errs field.ErrorList
	for i := range now {
		if !isPrefix(now[i].MatchExpressions, before[i].MatchExpressions) ||
			!isPrefix(now[i].MatchFields, before[i].MatchFields) {
			errs = append(errs, field.Invalid(path.Index(i), now[i],
				"only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

// isPrefix reports whether before is a prefix of after. A term without requirements matches nothing, and must stay so.
func isPrefix(after, before []corev1.NodeSelectorRequirement) bool {
	return len(after) >= len(before) && value.Same(after[:len(before)], before)
}

func isNarrower(after, before map[string]string) bool {
	for k, v := range before {
		if after[k] != v {
			return false
		}
	}
	return true
}

func validateDeadline(pod, old *corev1.Pod, path *field.Path) field.ErrorList {
	after, before := pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds
	switch {
	case after != nil && *after < 0:
		return validate.NotNegative(*after, path)
	case after != nil && before != nil && *after > *before:
		return field.ErrorList{field.Invalid(path, *after, "must be less than or equal to previous value")}
	case after == nil && before != nil:
		return field.ErrorList{field.Invalid(path, nil, "must not update from a positive integer to nil value")}
	}
	return nil
}

// validateTolerationsUpdate allows tolerations to be added, and their periods to be changed.
func validateTolerationsUpdate(after, before []corev1.Toleration, path *field.Path) field.ErrorList {
	for _, old := range before {
		kept := slices.ContainsFunc(after, func(t corev1.Toleration) bool {
			t.TolerationSeconds, old.TolerationSeconds = nil, nil
			return t == old
		})
		if !kept {
			return field.ErrorList{
				field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds"),
			}
		}
	}
	return podspec.ValidateTolerations(after, path)
}

// validateMirrorUpdate returns errors if a pod becomes a mirror pod or stops being one, since permissions depend on it.
func validateMirrorUpdate(pod, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("metadata", "annotations").Key(corev1.MirrorPodAnnotationKey)
	current, now := pod.Annotations[corev1.MirrorPodAnnotationKey]
	previous, before := old.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case now && !before:
		return field.ErrorList{field.Forbidden(path, "may not add mirror pod annotation")}
	case current != previous || before && !now:
		return field.ErrorList{field.Forbidden(path, "may not remove or update mirror pod annotation")}
	}
	return nil
}
