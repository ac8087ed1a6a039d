package kinds

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func leases() *Kind {
	return &Kind{
		GVK:      coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		Resource: "leases", Singular: "lease", Namespaced: true, CreateOnUpdate: true, ConditionalUpdate: true,
		New: newOf[coordinationv1.Lease](), NewList: newOf[coordinationv1.LeaseList](),
		Validate: adaptValidate(func(l *coordinationv1.Lease) field.ErrorList {
			path := field.NewPath("spec")
			var errs field.ErrorList
			if s := l.Spec.LeaseDurationSeconds; s != nil && *s <= 0 {
				errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *s, "must be greater than 0"))
			}
			if s := l.Spec.Strategy; s != nil {
				errs = append(errs,
					invalidErrors(path.Child("strategy"), *s, validation.IsQualifiedName(string(*s)))...)
			}
			if valueOrZero(l.Spec.PreferredHolder) != "" && valueOrZero(l.Spec.Strategy) == "" {
				errs = append(
					errs,
					field.Forbidden(path.Child("preferredHolder"), "may only be specified when `strategy` is defined"),
				)
			}
			return append(errs,
				requireNotNegative(int64(valueOrZero(l.Spec.LeaseTransitions)), path.Child("leaseTransitions"))...)
		}),
		Columns: newColumns("Holder", "Age"),
		Row: adaptRow(func(l *coordinationv1.Lease) []any {
			return []any{valueOrZero(l.Spec.HolderIdentity), age(l.CreationTimestamp)}
		}),
	}
}
