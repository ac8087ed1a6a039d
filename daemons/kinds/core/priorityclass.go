package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

// highestUserPriority is the highest priority that users may set. Higher ones are reserved for the system.
const highestUserPriority = int32(1000000000)

func PriorityClasses() *kind.Kind {
	return &kind.Kind{
		GVK:      schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
		Resource: "priorityclasses", Singular: "priorityclass", ShortNames: []string{"pc"}, HasGeneration: true,
		CreateOnUpdate: true,
		New:            kind.New[schedulingv1.PriorityClass](), NewList: kind.New[schedulingv1.PriorityClassList](),
		Default: kind.Adapt(
			func(c *schedulingv1.PriorityClass) {
				value.SetDefault(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
			},
		),
		Validate: kind.AdaptValidate(func(c *schedulingv1.PriorityClass) field.ErrorList {
			var errs field.ErrorList
			if strings.HasPrefix(c.Name, "system-") {
				if builtin, ok := SystemPriorities[c.Name]; !ok || builtin != c.Value {
					errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
						"priority class names with 'system-' prefix are reserved for system use only. error: "+
							c.Name+" is not a known system priority class"))
				}
			} else if c.Value > highestUserPriority {
				errs = append(errs, field.Forbidden(field.NewPath("value"), "maximum allowed value of a user defined "+
					"priority is 1000000000"))
			}
			return append(errs, validate.Supported(value.OrZero(c.PreemptionPolicy),
				[]corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever},
				field.NewPath("preemptionPolicy"))...)
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(c, old *schedulingv1.PriorityClass) field.ErrorList {
			var errs field.ErrorList
			if c.Value != old.Value {
				errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
			}
			return append(errs, validate.Immutable(c.PreemptionPolicy, old.PreemptionPolicy,
				field.NewPath("preemptionPolicy"))...)
		}),
		Columns: kind.NewColumns("Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"),
		Row: kind.AdaptRow(func(c *schedulingv1.PriorityClass) []any {
			return []any{int64(c.Value), c.GlobalDefault, cell.Age(c.CreationTimestamp),
				string(value.OrZero(c.PreemptionPolicy))}
		}),
	}
}

// SystemPriorities are the values of the priority classes that every cluster has.
var SystemPriorities = map[string]int32{
	"system-cluster-critical": 2000000000,
	"system-node-critical":    2000001000,
}
