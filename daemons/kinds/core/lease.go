package core

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func Leases() *kind.Kind {
	return &kind.Kind{
		GVK:      coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		Resource: "leases", Singular: "lease", Namespaced: true, CreateOnUpdate: true, ConditionalUpdate: true,
		New: kind.New[coordinationv1.Lease](), NewList: kind.New[coordinationv1.LeaseList](),
		Validate: kind.AdaptValidate(func(l *coordinationv1.Lease) field.ErrorList {
			path := field.NewPath("spec")
			var errs field.ErrorList
			if s := l.Spec.LeaseDurationSeconds; s != nil && *s <= 0 {
				errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *s, "must be greater than 0"))
			}
			if s := l.Spec.Strategy; s != nil {
				errs = append(errs,
					validate.Invalid(path.Child("strategy"), *s, validation.IsQualifiedName(string(*s)))...)
			}
			if value.OrZero(l.Spec.PreferredHolder) != "" && value.OrZero(l.Spec.Strategy) == "" {
				errs = append(errs, field.Forbidden(path.Child("preferredHolder"),
					"may only be specified when `strategy` is defined"))
			}
			return append(errs,
				validate.NotNegative(int64(value.OrZero(l.Spec.LeaseTransitions)), path.Child("leaseTransitions"))...)
		}),
		Columns: kind.NewColumns("Holder", "Age"),
		Row: kind.AdaptRow(func(l *coordinationv1.Lease) []any {
			return []any{value.OrZero(l.Spec.HolderIdentity), cell.Age(l.CreationTimestamp)}
		}),
	}
}
