package kinds

import (
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
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

func podDisruptionBudgets() *Kind {
	return &Kind{
		GVK:      policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		Resource: "poddisruptionbudgets", Singular: "poddisruptionbudget", ShortNames: []string{"pdb"},
		Namespaced: true, HasGeneration: true, ConditionalUpdate: true,
		New: newOf[policyv1.PodDisruptionBudget](), NewList: newOf[policyv1.PodDisruptionBudgetList](),
		PrepareCreate: adapt(func(b *policyv1.PodDisruptionBudget) { b.Status = policyv1.PodDisruptionBudgetStatus{} }),
		PrepareUpdate: adaptUpdate(func(b, old *policyv1.PodDisruptionBudget) { b.Status = old.Status }),
		Validate:      adaptValidate(validateBudget),
		Columns:       newColumns("Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"),
		Row: adaptRow(func(b *policyv1.PodDisruptionBudget) []any {
			least, most := "N/A", "N/A"
			if b.Spec.MinAvailable != nil {
				least = b.Spec.MinAvailable.String()
			}
			if b.Spec.MaxUnavailable != nil {
				most = b.Spec.MaxUnavailable.String()
			}
			return []any{least, most, int64(b.Status.DisruptionsAllowed), age(b.CreationTimestamp)}
		}),
		Status: newStatus(
			func(to, from *policyv1.PodDisruptionBudget) { to.Status = *from.Status.DeepCopy() },
			validateBudgetStatus,
		),
	}
}

func validateBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = append(errs, validateCountOrShare(b.Spec.MinAvailable, path.Child("minAvailable"))...)
	errs = append(errs, validateCountOrShare(b.Spec.MaxUnavailable, path.Child("maxUnavailable"))...)
	if b.Spec.Selector != nil {
		errs = append(
			errs,
			metavalidation.ValidateLabelSelector(
				b.Spec.Selector,
				metavalidation.LabelSelectorValidationOptions{},
				path.Child("selector"),
			)...)
	}
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(
			errs,
			requireSupported(
				*p,
				[]policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget},
				path.Child("unhealthyPodEvictionPolicy"),
			)...)
	}
	return errs
}

// highestUserPriority is the highest priority that users may set. Higher ones are reserved for the system.
const highestUserPriority = int32(1000000000)

func priorityClasses() *Kind {
	return &Kind{
		GVK:      schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
		Resource: "priorityclasses", Singular: "priorityclass", ShortNames: []string{"pc"}, HasGeneration: true,
		CreateOnUpdate: true,
		New:            newOf[schedulingv1.PriorityClass](), NewList: newOf[schedulingv1.PriorityClassList](),
		Default: adapt(
			func(c *schedulingv1.PriorityClass) { setDefault(&c.PreemptionPolicy, corev1.PreemptLowerPriority) },
		),
		Validate: adaptValidate(func(c *schedulingv1.PriorityClass) field.ErrorList {
			var errs field.ErrorList
			if strings.HasPrefix(c.Name, "system-") {
				if builtin, ok := SystemPriorities[c.Name]; !ok || builtin != c.Value {
					errs = append(
						errs,
						field.Forbidden(
							field.NewPath("metadata", "name"),
							"priority class names with 'system-' prefix are reserved for system use only. error: "+
								c.Name+" is not a known system priority class",
						),
					)
				}
			} else if c.Value > highestUserPriority {
				errs = append(errs, field.Forbidden(field.NewPath("value"), "maximum allowed value of a user defined "+
					"priority is 1000000000"))
			}
			return append(
				errs,
				requireSupported(
					valueOrZero(c.PreemptionPolicy),
					[]corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever},
					field.NewPath("preemptionPolicy"),
				)...)
		}),
		ValidateUpdate: adaptValidateUpdate(func(c, old *schedulingv1.PriorityClass) field.ErrorList {
			var errs field.ErrorList
			if c.Value != old.Value {
				errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
			}
			return append(
				errs,
				requireImmutable(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
		}),
		Columns: newColumns("Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"),
		Row: adaptRow(func(c *schedulingv1.PriorityClass) []any {
			return []any{int64(c.Value), c.GlobalDefault, age(c.CreationTimestamp),
				string(valueOrZero(c.PreemptionPolicy))}
		}),
	}
}

// SystemPriorities are the values of the priority classes that every cluster has.
var SystemPriorities = map[string]int32{
	"system-cluster-critical": 2000000000,
	"system-node-critical":    2000001000,
}

func runtimeClasses() *Kind {
	return &Kind{
		GVK:      nodev1.SchemeGroupVersion.WithKind("RuntimeClass"),
		Resource: "runtimeclasses", Singular: "runtimeclass", CreateOnUpdate: true, ConditionalUpdate: true,
		New: newOf[nodev1.RuntimeClass](), NewList: newOf[nodev1.RuntimeClassList](),
		Warnings: adaptWarnings(runtimeClassWarnings),
		Validate: adaptValidate(validateRuntimeClass),
		ValidateUpdate: adaptValidateUpdate(func(c, old *nodev1.RuntimeClass) field.ErrorList {
			return append(validateRuntimeClass(c),
				requireImmutable(c.Handler, old.Handler, field.NewPath("handler"))...)
		}),
		Columns: newColumns("Handler", "Age"),
		Row:     adaptRow(func(c *nodev1.RuntimeClass) []any { return []any{c.Handler, age(c.CreationTimestamp)} }),
	}
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := requireValue(c.Handler, field.NewPath("handler"), "")
	if c.Handler != "" {
		errs = validateDNSLabel(c.Handler, field.NewPath("handler"))
	}
	if c.Overhead != nil {
		errs = append(errs, validateQuantities(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if s := c.Scheduling; s != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(s.Tolerations, path.Child("tolerations"))...)
		for i, t := range s.Tolerations {
			if slices.ContainsFunc(
				s.Tolerations[:i],
				func(other corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, other) },
			) {
				errs = append(errs, field.Duplicate(path.Child("tolerations").Index(i), t))
			}
		}
	}
	return errs
}
