package device

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func ResourceClaims() *kind.Kind {
	return &kind.Kind{
		GVK:      resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"),
		Resource: "resourceclaims", Singular: "resourceclaim", Namespaced: true,
		New: kind.New[resourcev1.ResourceClaim](), NewList: kind.New[resourcev1.ResourceClaimList](),
		Default: kind.Adapt(func(c *resourcev1.ResourceClaim) {
			defaultDeviceClaim(&c.Spec.Devices)
			if c.Status.Allocation != nil {
				for i := range c.Status.Allocation.Devices.Results {
					defaultTolerations(c.Status.Allocation.Devices.Results[i].Tolerations)
				}
			}
		}),
		PrepareCreate: kind.Adapt(func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} }),
		PrepareUpdate: kind.AdaptUpdate(func(c, old *resourcev1.ResourceClaim) { c.Status = old.Status }),
		Validate: kind.AdaptValidate(func(c *resourcev1.ResourceClaim) field.ErrorList {
			return validateDeviceClaim(&c.Spec.Devices, field.NewPath("spec", "devices"))
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(c, old *resourcev1.ResourceClaim) field.ErrorList {
			return validate.Immutable(c.Spec, old.Spec, field.NewPath("spec"))
		}),
		Columns: kind.NewColumns("State", "Age"),
		Row: kind.AdaptRow(func(c *resourcev1.ResourceClaim) []any {
			return []any{claimState(c),
				cell.Age(c.CreationTimestamp)}
		}),
		Status: &kind.Status{
			KeepsAllMeta: true,
			Copy: kind.AdaptUpdate(func(to,
				from *resourcev1.ResourceClaim) {
				to.Status = *from.Status.DeepCopy()
			}),
			Validate: kind.AdaptValidateUpdate(validateClaimStatus),
		},
	}
}

// claimState returns a claim's state for kubectl. It has several words if several states apply.
func claimState(c *resourcev1.ResourceClaim) string {
	var words []string
	if c.DeletionTimestamp != nil {
		words = append(words, "deleted")
	}
	if c.Status.Allocation == nil {
		if c.DeletionTimestamp == nil {
			words = append(words, "pending")
		}
	} else {
		words = append(words, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			words = append(words, "reserved")
		}
	}
	return strings.Join(words, ",")
}

func ResourceClaimTemplates() *kind.Kind {
	return &kind.Kind{
		GVK:      resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"),
		Resource: "resourceclaimtemplates", Singular: "resourceclaimtemplate", Namespaced: true,
		New: kind.New[resourcev1.ResourceClaimTemplate](), NewList: kind.New[resourcev1.ResourceClaimTemplateList](),
		Default: kind.Adapt(func(t *resourcev1.ResourceClaimTemplate) { defaultDeviceClaim(&t.Spec.Spec.Devices) }),
		Validate: kind.AdaptValidate(func(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
			path, m := field.NewPath("spec", "metadata"), &t.Spec.ObjectMeta
			errs := metavalidation.ValidateLabels(m.Labels, path.Child("labels"))
			errs = append(errs, apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations"))...)
			errs = append(errs, validate.ObjectMetaUnset(m, path, "cannot be set")...)
			return append(errs, validateDeviceClaim(&t.Spec.Spec.Devices, field.NewPath("spec", "spec", "devices"))...)
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return validate.Immutable(t.Spec, old.Spec, field.NewPath("spec"))
		}),
		Columns: kind.NewColumns("Age"),
		Row: kind.AdaptRow(func(t *resourcev1.ResourceClaimTemplate) []any {
			return []any{cell.Age(t.CreationTimestamp)}
		}),
	}
}

func defaultDeviceClaim(c *resourcev1.DeviceClaim) {
	mode := func(m *resourcev1.DeviceAllocationMode, count *int64) {
		value.SetEmpty(m, resourcev1.DeviceAllocationModeExactCount)
		if *m == resourcev1.DeviceAllocationModeExactCount {
			value.SetEmpty(count, 1)
		}
	}
	for i := range c.Requests {
		if r := c.Requests[i].Exactly; r != nil {
			mode(&r.AllocationMode, &r.Count)
			defaultTolerations(r.Tolerations)
		}
		for j := range c.Requests[i].FirstAvailable {
			r := &c.Requests[i].FirstAvailable[j]
			mode(&r.AllocationMode, &r.Count)
			defaultTolerations(r.Tolerations)
		}
	}
}

func defaultTolerations(list []resourcev1.DeviceToleration) {
	for i := range list {
		value.SetEmpty(&list[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}
