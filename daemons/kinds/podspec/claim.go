package podspec

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"clusterctl/daemons/kinds/validate"
)

// validatePodClaims checks a pod's ResourceClaims and its pod-level resources.
func validatePodClaims(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range spec.ResourceClaims {
		at := path.Child("resourceClaims").Index(i)
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case seen[c.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		default:
			errs = append(errs, validate.DNSLabel(c.Name, at.Child("name"))...)
		}
		seen[c.Name] = true
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, c,
				"at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, c,
				"must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		case c.ResourceClaimName != nil:
			errs = append(errs, validate.DNSSubdomain(*c.ResourceClaimName, at.Child("resourceClaimName"))...)
		default:
			errs = append(errs, validate.DNSSubdomain(*c.ResourceClaimTemplateName,
				at.Child("resourceClaimTemplateName"))...)
		}
	}
	if r := spec.Resources; r != nil {
		at := path.Child("resources")
		errs = append(errs, validateRequirements(r, at)...)
		if len(r.Claims) > 0 {
			errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
		}
		errs = append(errs, validatePodTotals(r, spec, path)...)
	}
	return errs
}

// validatePodTotals requires that pod-level resources cover those of the containers.
func validatePodTotals(r *corev1.ResourceRequirements, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("resources")
	together := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec},
		resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if !resourcehelper.IsSupportedPodLevelResource(name) {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), name,
				"unsupported pod-level resource"))
			continue
		}
		if sum := together[name]; sum.Cmp(request) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), request.String(),
				"must be greater than or equal to aggregate container requests of "+sum.String()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		limit := r.Limits[name]
		if !resourcehelper.IsSupportedPodLevelResource(name) {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(name)), name,
				"unsupported pod-level resource"))
			continue
		}
		for _, list := range []struct {
			name       string
			containers []corev1.Container
		}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
			for i := range list.containers {
				if own, ok := list.containers[i].Resources.Limits[name]; ok && own.Cmp(limit) > 0 {
					where := path.Child(list.name).Index(i).Child("resources", "limits").Key(string(name))
					errs = append(errs, field.Invalid(where, own.String(),
						"must be less than or equal to pod limits of "+limit.String()))
				}
			}
		}
	}
	return errs
}

// validateContainerClaims requires that a container uses only claims that its pod has.
func validateContainerClaims(r *corev1.ResourceRequirements, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, seen := map[string]bool{}, map[corev1.ResourceClaim]bool{}
	for _, c := range spec.ResourceClaims {
		names[c.Name] = true
	}
	for i, c := range r.Claims {
		at := path.Index(i)
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case seen[c]:
			errs = append(errs, field.Duplicate(at, c.Name))
		case !names[c.Name]:
			errs = append(errs, field.NotFound(at.Child("name"), c.Name))
		}
		if c.Request != "" {
			errs = append(errs, validate.DNSLabel(c.Request, at.Child("request"))...)
		}
		seen[c] = true
	}
	return errs
}
