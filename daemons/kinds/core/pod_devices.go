package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

var healthValues = []corev1.ResourceHealthStatus{
	corev1.ResourceHealthStatusHealthy,
	corev1.ResourceHealthStatusUnhealthy,
	corev1.ResourceHealthStatusUnknown,
}

// validateDeviceStatuses checks the device statuses of containers: each must be about a resource that the container
// requested, and must appear once.
func validateDeviceStatuses(list []corev1.ContainerStatus, containers []corev1.Container,
	path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		if len(list[i].AllocatedResourcesStatus) == 0 {
			continue
		}
		at := path.Index(i).Child("allocatedResourcesStatus")
		of := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == list[i].Name })
		names := map[corev1.ResourceName]bool{}
		for j, r := range list[i].AllocatedResourcesStatus {
			where := at.Index(j)
			if names[r.Name] {
				errs = append(errs, field.Duplicate(where.Child("name"), r.Name))
			}
			names[r.Name] = true
			if reason := unrequestedReason(r.Name, of, containers); reason != "" {
				errs = append(errs, field.Invalid(where.Child("name"), r.Name, reason))
			}
			errs = append(errs, validateDeviceHealth(r.Resources, where.Child("resources"))...)
		}
	}
	return errs
}

// unrequestedReason returns why a container's status cannot be about a resource, or "". Extended resources that a claim
// provides are reported under the claim's name, which the spec does not contain.
func unrequestedReason(name corev1.ResourceName, of int, containers []corev1.Container) string {
	if claim, ok := strings.CutPrefix(string(name), "claim:"); ok {
		if of < 0 {
			return ""
		}
		for _, c := range containers[of].Resources.Claims {
			if claim == c.Name && c.Request == "" || claim == c.Name+"/"+c.Request {
				return ""
			}
		}
		for resource := range containers[of].Resources.Requests {
			if strings.Contains(claim, "/") && strings.Contains(string(resource), "/") {
				return ""
			}
		}
		return "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or " +
			"'claim:<claimName>' if request is empty"
	}
	if of >= 0 {
		if _, requested := containers[of].Resources.Requests[name]; !requested {
			return "must match one of the container's resource requirements"
		}
	}
	return ""
}

func validateDeviceHealth(list []corev1.ResourceHealth, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceID]bool{}
	for i, r := range list {
		at := path.Index(i)
		if seen[r.ResourceID] {
			errs = append(errs, field.Duplicate(at.Child("resourceID"), r.ResourceID))
		}
		seen[r.ResourceID] = true
		if !slices.Contains(healthValues, r.Health) {
			errs = append(errs, validate.NotSupported(at.Child("health"), r.Health, healthValues))
		}
		if r.Message != nil && len(*r.Message) > corev1.ResourceHealthMessageMaxLength {
			errs = append(errs, field.TooLong(at.Child("message"), "", corev1.ResourceHealthMessageMaxLength))
		}
	}
	return errs
}
