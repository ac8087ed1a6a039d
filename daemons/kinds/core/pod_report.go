package core

import (
	"net"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

// validatePodStatusUpdate checks a kubelet's report: a container that has ended for good must not run again, and the
// QoS class must not change.
func validatePodStatusUpdate(pod, old *corev1.Pod) field.ErrorList {
	path, after, before := field.NewPath("status"), &pod.Status, &old.Status
	errs := validateMirrorUpdate(pod, old)
	if name := after.NominatedNodeName; name != "" && name != before.NominatedNodeName {
		errs = append(errs, validate.DNSSubdomain(name, path.Child("nominatedNodeName"))...)
	}
	policy := old.Spec.RestartPolicy
	errs = append(errs, validateStayTerminated(after.ContainerStatuses, before.ContainerStatuses,
		restartCheck(policy, old.Spec.Containers), path.Child("containerStatuses"))...)
	errs = append(errs, validateStayTerminated(after.InitContainerStatuses, before.InitContainerStatuses,
		initRestartCheck(policy, old.Spec.InitContainers), path.Child("initContainerStatuses"))...)
	errs = append(errs, validateStayTerminated(after.EphemeralContainerStatuses, before.EphemeralContainerStatuses,
		neverRestarts, path.Child("ephemeralContainerStatuses"))...)
	errs = append(errs, validateDeviceStatuses(after.ContainerStatuses, old.Spec.Containers,
		path.Child("containerStatuses"))...)
	errs = append(errs, validateDeviceStatuses(after.InitContainerStatuses, old.Spec.InitContainers,
		path.Child("initContainerStatuses"))...)
	for i, c := range after.EphemeralContainerStatuses {
		if len(c.AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ephemeralContainerStatuses").Index(i).Child(
				"allocatedResourcesStatus"), "cannot be set for a container status"))
		}
	}
	errs = append(errs, validate.Immutable(after.QOSClass, before.QOSClass, path.Child("qosClass"))...)
	var ips, hosts []string
	for _, ip := range after.PodIPs {
		ips = append(ips, ip.IP)
	}
	for _, ip := range after.HostIPs {
		hosts = append(hosts, ip.IP)
	}
	if !value.Same(after.PodIPs, before.PodIPs) {
		errs = append(errs, validateDualAddresses(ips, path.Child("podIPs"),
			"may specify no more than one IP for each IP family")...)
	}
	if !value.Same(after.HostIPs, before.HostIPs) {
		errs = append(errs, validateDualAddresses(hosts, path.Child("hostIPs"),
			"may specify no more than one IP for each IP family")...)
	}
	errs = append(errs, validateClaimStatuses(after.ResourceClaimStatuses, old.Spec.ResourceClaims, path)...)
	for i, c := range after.Conditions {
		at := path.Child("conditions").Index(i)
		if c.ObservedGeneration < 0 {
			errs = append(errs,
				field.Invalid(at.Child("observedGeneration"), c.ObservedGeneration, validate.NotNegativeText))
		}
	}
	return errs
}

// validateClaimStatuses requires that each reported claim is one of the pod's, and unique.
func validateClaimStatuses(
	list []corev1.PodResourceClaimStatus,
	claims []corev1.PodResourceClaim,
	path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range list {
		at := path.Child("resourceClaimStatuses").Index(i)
		isKnown := false
		for _, claim := range claims {
			isKnown = isKnown || claim.Name == c.Name
		}
		if !isKnown {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name,
				"must match the name of an entry in `spec.resourceClaims`"))
		}
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
		if c.ResourceClaimName != nil {
			errs = append(errs, validate.DNSSubdomain(*c.ResourceClaimName, at.Child("resourceClaimName"))...)
		}
	}
	return errs
}

// validateDualAddresses requires at most one address of each family.
func validateDualAddresses(list []string, path *field.Path, text string) field.ErrorList {
	var errs field.ErrorList
	families := map[bool]int{}
	for i, ip := range list {
		parsed := net.ParseIP(ip)
		if parsed == nil {
			errs = append(errs, validation.IsValidIP(path.Index(i), ip)...)
			continue
		}
		families[parsed.To4() != nil]++
	}
	if families[true] > 1 || families[false] > 1 {
		errs = append(errs, field.Invalid(path, list, text))
	}
	return errs
}

func neverRestarts(string, int32) bool { return false }

// restartCheck returns a function that reports whether a container that ended with an exit code may run again, by its
// own policy and rules or by the pod's policy.
func restartCheck(pods corev1.RestartPolicy, containers []corev1.Container) func(name string, code int32) bool {
	by := func(policy corev1.RestartPolicy, code int32) bool {
		return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && code != 0
	}
	return func(name string, code int32) bool {
		for i := range containers {
			c := &containers[i]
			if c.Name != name || c.RestartPolicy == nil {
				continue
			}
			return len(c.RestartPolicyRules) > 0 || by(corev1.RestartPolicy(*c.RestartPolicy), code)
		}
		return by(pods, code)
	}
}

// initRestartCheck is restartCheck for init containers. An init container that succeeded may run again if the pod
// restarts, for example after a reboot of its node.
func initRestartCheck(pods corev1.RestartPolicy, containers []corev1.Container) func(name string, code int32) bool {
	restarts := restartCheck(pods, containers)
	return func(name string, code int32) bool { return code == 0 || restarts(name, code) }
}

func validateStayTerminated(
	updated, old []corev1.ContainerStatus,
	restarts func(name string, code int32) bool,
	path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i, before := range old {
		if before.State.Terminated == nil || restarts(before.Name, before.State.Terminated.ExitCode) {
			continue
		}
		for _, now := range updated {
			if now.Name == before.Name && now.State.Terminated == nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("state"),
					"may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}
