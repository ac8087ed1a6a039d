package authz

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"clusterctl/daemons/api"
)

// selectorsOf returns the selectors of a request for a webhook, for verbs that have selectors. Requirements that cannot
// be expressed are left out. So the webhook may be asked about more objects than are requested, but never fewer.
func selectorsOf(
	r api.Request,
) (f *authorizationv1.FieldSelectorAttributes, l *authorizationv1.LabelSelectorAttributes) {
	switch r.Verb {
	case "list", "watch", "deletecollection":
	default:
		return nil, nil
	}
	if s, err := fields.ParseSelector(r.FieldSelector); err == nil {
		var list []metav1.FieldSelectorRequirement
		for _, q := range s.Requirements() {
			switch q.Operator {
			case selection.Equals, selection.DoubleEquals:
				list = append(
					list,
					metav1.FieldSelectorRequirement{
						Key:      q.Field,
						Operator: metav1.FieldSelectorOpIn,
						Values:   []string{q.Value},
					},
				)
			case selection.NotEquals:
				list = append(
					list,
					metav1.FieldSelectorRequirement{
						Key:      q.Field,
						Operator: metav1.FieldSelectorOpNotIn,
						Values:   []string{q.Value},
					},
				)
			}
		}
		if len(list) > 0 {
			f = &authorizationv1.FieldSelectorAttributes{Requirements: list}
		}
	}
	if s, err := labels.Parse(r.LabelSelector); err == nil {
		var list []metav1.LabelSelectorRequirement
		wanted, _ := s.Requirements()
		for _, q := range wanted {
			one := metav1.LabelSelectorRequirement{Key: q.Key()}
			switch q.Operator() {
			case selection.Equals, selection.DoubleEquals, selection.In:
				one.Operator, one.Values = metav1.LabelSelectorOpIn, q.ValuesUnsorted()
			case selection.NotEquals, selection.NotIn:
				one.Operator, one.Values = metav1.LabelSelectorOpNotIn, q.ValuesUnsorted()
			case selection.Exists:
				one.Operator = metav1.LabelSelectorOpExists
			case selection.DoesNotExist:
				one.Operator = metav1.LabelSelectorOpDoesNotExist
			default:
				continue
			}
			list = append(list, one)
		}
		if len(list) > 0 {
			l = &authorizationv1.LabelSelectorAttributes{Requirements: list}
		}
	}
	return f, l
}
