package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
)

func PodDisruptionBudgets() *kind.Kind {
	return &kind.Kind{
		GVK:      policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		Resource: "poddisruptionbudgets", Singular: "poddisruptionbudget", ShortNames: []string{"pdb"},
		Namespaced: true, HasGeneration: true, ConditionalUpdate: true,
		New: kind.New[policyv1.PodDisruptionBudget](), NewList: kind.New[policyv1.PodDisruptionBudgetList](),
		PrepareCreate: kind.Adapt(func(b *policyv1.PodDisruptionBudget) {
			b.Status = policyv1.PodDisruptionBudgetStatus{}
		}),
		PrepareUpdate: kind.AdaptUpdate(func(b, old *policyv1.PodDisruptionBudget) { b.Status = old.Status }),
		Validate:      kind.AdaptValidate(validateBudget),
		Columns:       kind.NewColumns("Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"),
		Row: kind.AdaptRow(func(b *policyv1.PodDisruptionBudget) []any {
			minimum, maximum := "N/A", "N/A"
			if b.Spec.MinAvailable != nil {
				minimum = b.Spec.MinAvailable.String()
			}
			if b.Spec.MaxUnavailable != nil {
				maximum = b.Spec.MaxUnavailable.String()
			}
			return []any{minimum, maximum, int64(b.Status.DisruptionsAllowed), cell.Age(b.CreationTimestamp)}
		}),
		Status: kind.NewStatus(func(to, from *policyv1.PodDisruptionBudget) { to.Status = *from.Status.DeepCopy() },
			validateBudgetStatus),
	}
}

func validateBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = append(errs, validate.CountOrShare(b.Spec.MinAvailable, path.Child("minAvailable"))...)
	errs = append(errs, validate.CountOrShare(b.Spec.MaxUnavailable, path.Child("maxUnavailable"))...)
	if b.Spec.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(b.Spec.Selector,
			metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, validate.Supported(*p,
			[]policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget},
			path.Child("unhealthyPodEvictionPolicy"))...)
	}
	return errs
}

func validateBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s := &b.Status
	return requireNotNegativeCounts(field.NewPath("status"),
		namedCount{"disruptionsAllowed", int64(s.DisruptionsAllowed)},
		namedCount{"currentHealthy", int64(s.CurrentHealthy)}, namedCount{"desiredHealthy", int64(s.DesiredHealthy)},
		namedCount{"expectedPods", int64(s.ExpectedPods)})
}
