package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/api"
)

// deviceAdmin allows administrative access to devices only in namespaces that are labelled for it. Such access includes
// devices that other claims use.
type deviceAdmin struct{ objects api.CurrentObjects }

// Validate checks the requests of claims and templates, and the allocations of claims.
func (p *deviceAdmin) Validate(ctx context.Context, a *api.Admission) error {
	var at *field.Path
	switch obj := a.Object.(type) {
	case *resourcev1.ResourceClaim:
		switch {
		case a.Operation == "CREATE":
			at = adminAccessField(&obj.Spec, field.NewPath("spec"))
		case a.Subresource == "status":
			if old, ok := a.Old.(*resourcev1.ResourceClaim); ok && firstAdminResult(old.Status.Allocation) < 0 {
				if i := firstAdminResult(obj.Status.Allocation); i >= 0 {
					at = field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
				}
			}
		}
	case *resourcev1.ResourceClaimTemplate:
		if a.Operation == "CREATE" { // updates cannot change its spec
			at = adminAccessField(&obj.Spec.Spec, field.NewPath("spec", "spec"))
		}
	}
	if at == nil {
		return nil
	}
	obj, err := currentObject(ctx, p.objects, namespacesGR, "", a.Namespace)
	if err != nil {
		return err
	}
	if ns, ok := obj.(*corev1.Namespace); ok && ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
		return nil
	}
	return apierrors.NewInvalid(a.Kind.GroupKind(), a.Name, field.ErrorList{
		field.Forbidden(at, fmt.Sprintf(
			"admin access to devices requires the `%s: true` label on the containing namespace",
			resourcev1.DRAAdminNamespaceLabelKey))})
}

// adminAccessField returns the field with which a claim requests administrative access; nil if there is none.
func adminAccessField(s *resourcev1.ResourceClaimSpec, path *field.Path) *field.Path {
	for i, r := range s.Devices.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return path.Child("devices", "requests").Index(i).Child("exactly", "adminAccess")
		}
	}
	return nil
}

// firstAdminResult returns the index of the first device that is allocated with administrative access; -1 if there is
// none.
func firstAdminResult(r *resourcev1.AllocationResult) int {
	if r == nil {
		return -1
	}
	return slices.IndexFunc(r.Devices.Results,
		func(d resourcev1.DeviceRequestAllocationResult) bool { return d.AdminAccess != nil && *d.AdminAccess })
}
