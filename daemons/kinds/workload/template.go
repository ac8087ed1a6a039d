package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// validateTemplateSelector requires a valid, non-empty selector that matches the labels of the template.
func validateTemplateSelector(
	kind string,
	s *metav1.LabelSelector,
	template *corev1.PodTemplateSpec,
	path *field.Path,
) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path.Child("selector"), "")}
	}
	errs := metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{},
		path.Child("selector"))
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path.Child("selector"), s,
			"empty selector is invalid for "+strings.ToLower(kind[:1])+kind[1:]))
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return append(errs, field.Invalid(path.Child("selector"), s, "invalid label selector"))
	}
	if !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), template.Labels,
			"`selector` does not match template `labels`"))
	}
	return errs
}

// requireAlwaysRestart requires the restart policy Always, for kinds whose pods never finish.
func requireAlwaysRestart(kind string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, validate.NotSupported(path.Child("restartPolicy"), spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("activeDeadlineSeconds"),
			"activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}
