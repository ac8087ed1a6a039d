package review

import (
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateSelectors returns the errors in the selectors of a review. Unknown operators are not errors, because a newer
// client may use them. Their requirements are ignored, so the request counts as less restricted and is allowed less.
func validateSelectors(r *authorizationv1.ResourceAttributes, path *field.Path) (errs field.ErrorList) {
	one := func(raw string, requirements int, path *field.Path) {
		switch {
		case raw != "" && requirements > 0:
			errs = append(errs, field.Invalid(path.Child("rawSelector"), raw,
				"may not specified at the same time as requirements"))
		case raw == "" && requirements == 0:
			errs = append(errs, field.Required(path.Child("requirements"), fmt.Sprintf(
				"when %s is specified, requirements or rawSelector is required", path)))
		}
	}
	if f := r.FieldSelector; f != nil {
		path := path.Child("fieldSelector")
		one(f.RawSelector, len(f.Requirements), path)
		for i, q := range f.Requirements {
			errs = append(errs, validation.ValidateFieldSelectorRequirement(q,
				validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true},
				path.Child("requirements").Index(i))...)
		}
	}
	if l := r.LabelSelector; l != nil {
		path := path.Child("labelSelector")
		one(l.RawSelector, len(l.Requirements), path)
		for i, q := range l.Requirements {
			errs = append(errs, validation.ValidateLabelSelectorRequirement(q,
				validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true},
				path.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// ignoredSelectors returns an error for selectors that were ignored because they cannot be parsed.
func ignoredSelectors(r *authorizationv1.ResourceAttributes) error {
	if r == nil {
		return nil
	}
	var errs []error
	if f := r.FieldSelector; f != nil {
		if _, err := fields.ParseSelector(f.RawSelector); err != nil {
			errs = append(errs, errors.New(
				"spec.resourceAttributes.fieldSelector partially ignored due to parse error"))
		}
	}
	if l := r.LabelSelector; l != nil {
		if _, err := labels.Parse(l.RawSelector); err != nil {
			errs = append(errs, errors.New(
				"spec.resourceAttributes.labelSelector partially ignored due to parse error"))
		}
	}
	return errors.Join(errs...)
}

// selectors returns the selectors of a review in the form of query parameters.
func selectors(r *authorizationv1.ResourceAttributes) (fieldText, labelText string) {
	if f := r.FieldSelector; f != nil {
		fieldText = f.RawSelector
		var parts []fields.Selector
		for _, q := range f.Requirements {
			switch {
			case q.Operator == metav1.FieldSelectorOpIn && len(q.Values) == 1:
				parts = append(parts, fields.OneTermEqualSelector(q.Key, q.Values[0]))
			case q.Operator == metav1.FieldSelectorOpNotIn && len(q.Values) == 1:
				parts = append(parts, fields.OneTermNotEqualSelector(q.Key, q.Values[0]))
			}
		}
		if fieldText == "" && len(parts) > 0 {
			fieldText = fields.AndSelectors(parts...).String()
		}
	}
	if l := r.LabelSelector; l != nil {
		labelText = l.RawSelector
		var wanted []labels.Requirement
		for _, q := range l.Requirements {
			one, err := metav1.LabelSelectorAsSelector(
				&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{q}},
			)
			if err != nil {
				continue // an invalid requirement is ignored, so it restricts nothing
			}
			if parts, ok := one.Requirements(); ok {
				wanted = append(wanted, parts...)
			}
		}
		if labelText == "" {
			// added together, because each call sorts all requirements
			labelText = labels.NewSelector().Add(wanted...).String()
		}
	}
	return fieldText, labelText
}
