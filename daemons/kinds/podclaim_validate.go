package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePodClaims checks which devices a pod claims, and what it asks for as a whole.
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
			errs = append(errs, dns1123Label(c.Name, at.Child("name"))...)
		}
		seen[c.Name] = true
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		case c.ResourceClaimName != nil:
			errs = append(errs, dns1123Subdomain(*c.ResourceClaimName, at.Child("resourceClaimName"))...)
		default:
			errs = append(errs, dns1123Subdomain(*c.ResourceClaimTemplateName, at.Child("resourceClaimTemplateName"))...)
		}
	}
	if r := spec.Resources; r != nil {
		at := path.Child("resources")
		errs = append(errs, validateRequirements(r, at)...)
		if len(r.Claims) > 0 {
			errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
		}
	}
	return errs
}

// claimsOf demands that a container takes part in claims that its pod has.
func claimsOf(r *corev1.ResourceRequirements, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
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
			errs = append(errs, dns1123Label(c.Request, at.Child("request"))...)
		}
		seen[c] = true
	}
	return errs
}
