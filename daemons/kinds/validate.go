package kinds

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Checks that several kinds share. The messages are upstream's, since users search for them.

const (
	immutableText   = "field is immutable"
	notNegativeText = "must be greater than or equal to 0"
)

// markRepeats returns, for each value of a list, whether an earlier one is equal.
func markRepeats[T comparable](list []T) []bool {
	seen, again := make(map[T]struct{}, len(list)), make([]bool, len(list))
	for i, v := range list {
		_, again[i] = seen[v]
		seen[v] = struct{}{}
	}
	return again
}

func isOneOf[T comparable](v T, list []T) bool { return slices.Contains(list, v) }

// notSupported returns an error that lists the permitted values in order, as upstream does.
func notSupported[V any, T ~string](path *field.Path, v V, list []T) *field.Error {
	list = slices.Clone(list)
	slices.Sort(list)
	return field.NotSupported(path, v, list)
}

// requireSupported requires one of list.
func requireSupported[T ~string](v T, list []T, path *field.Path) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if !isOneOf(v, list) {
		return field.ErrorList{notSupported(path, v, list)}
	}
	return nil
}

func validateProtocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return requireSupported(p, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, path)
}

func requireImmutable(v, old any, path *field.Path) field.ErrorList {
	if !Same(v, old) {
		return field.ErrorList{field.Invalid(path, v, immutableText)}
	}
	return nil
}

func requireNotNegative(v int64, path *field.Path) field.ErrorList {
	if v < 0 {
		return field.ErrorList{field.Invalid(path, v, notNegativeText).WithOrigin("minimum")}
	}
	return nil
}

// invalidErrors returns an error for each message.
func invalidErrors(path *field.Path, v any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, v, m))
	}
	return errs
}

func validatePortNumber(port int, path *field.Path) field.ErrorList {
	return invalidErrors(path, port, validation.IsValidPortNum(port))
}

func validateDNSLabel(v string, path *field.Path) field.ErrorList {
	return invalidErrors(path, v, validation.IsDNS1123Label(v))
}

func validateDNSSubdomain(v string, path *field.Path) field.ErrorList {
	return invalidErrors(path, v, validation.IsDNS1123Subdomain(v))
}

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
	errs := metavalidation.ValidateLabelSelector(
		s,
		metavalidation.LabelSelectorValidationOptions{},
		path.Child("selector"),
	)
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(
			errs,
			field.Invalid(
				path.Child("selector"),
				s,
				"empty selector is invalid for "+strings.ToLower(kind[:1])+kind[1:],
			),
		)
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
		errs = append(
			errs,
			notSupported(
				path.Child("restartPolicy"),
				spec.RestartPolicy,
				[]corev1.RestartPolicy{corev1.RestartPolicyAlways},
			),
		)
	}
	if spec.ActiveDeadlineSeconds != nil {
		errs = append(
			errs,
			field.Forbidden(path.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported"),
		)
	}
	return errs
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// validateLabelValue checks the value of a label or of a label selector.
func validateLabelValue(v string, path *field.Path) field.ErrorList {
	return invalidErrors(path, v, validation.IsValidLabelValue(v))
}

// validateCountOrPercent checks a number of pods, or a percentage of them, which may be above 100.
func validateCountOrPercent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return requireNotNegative(int64(v.IntVal), path)
	}
	return invalidErrors(path, v.String(), validation.IsValidPercent(v.StrVal))
}

// validateCountOrShare checks a number of pods, or a percentage of them, which may not be above 100.
func validateCountOrShare(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := validateCountOrPercent(v, path)
	if len(errs) > 0 || v == nil || v.Type == intstr.Int {
		return errs
	}
	if percent, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%")); err != nil || percent > 100 {
		return field.ErrorList{field.Invalid(path, v.String(), "must not be greater than 100%")}
	}
	return nil
}

// isZero reports whether a number or percentage of pods is zero.
func isZero(v *intstr.IntOrString) bool {
	if v == nil {
		return true
	}
	if v.Type == intstr.Int {
		return v.IntVal == 0
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return err == nil && n == 0
}
