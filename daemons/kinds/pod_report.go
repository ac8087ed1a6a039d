package kinds

import (
	"net"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePodStatusUpdate checks a kubelet's report: a container that has ended for good must not run again, and the
// QoS class must not change.
func validatePodStatusUpdate(pod, old *corev1.Pod) field.ErrorList {
	path, is, was := field.NewPath("status"), &pod.Status, &old.Status
	errs := mirrorKept(pod, old)
	if name := is.NominatedNodeName; name != "" && name != was.NominatedNodeName {
		errs = append(errs, dns1123Subdomain(name, path.Child("nominatedNodeName"))...)
	}
	policy := old.Spec.RestartPolicy
	errs = append(
		errs,
		stayTerminated(
			is.ContainerStatuses,
			was.ContainerStatuses,
			mayRestart(policy, old.Spec.Containers),
			path.Child("containerStatuses"),
		)...)
	errs = append(
		errs,
		stayTerminated(
			is.InitContainerStatuses,
			was.InitContainerStatuses,
			mayInitialize(policy, old.Spec.InitContainers),
			path.Child("initContainerStatuses"),
		)...)
	errs = append(
		errs,
		stayTerminated(
			is.EphemeralContainerStatuses,
			was.EphemeralContainerStatuses,
			never,
			path.Child("ephemeralContainerStatuses"),
		)...)
	errs = append(errs, deviceStatuses(is.ContainerStatuses, old.Spec.Containers, path.Child("containerStatuses"))...)
	errs = append(
		errs,
		deviceStatuses(is.InitContainerStatuses, old.Spec.InitContainers, path.Child("initContainerStatuses"))...)
	for i, c := range is.EphemeralContainerStatuses {
		if len(c.AllocatedResourcesStatus) > 0 {
			errs = append(
				errs,
				field.Forbidden(
					path.Child("ephemeralContainerStatuses").Index(i).Child("allocatedResourcesStatus"),
					"cannot be set for a container status",
				),
			)
		}
	}
	errs = append(errs, immutable(is.QOSClass, was.QOSClass, path.Child("qosClass"))...)
	var ips, hosts []string
	for _, ip := range is.PodIPs {
		ips = append(ips, ip.IP)
	}
	for _, ip := range is.HostIPs {
		hosts = append(hosts, ip.IP)
	}
	if !Same(is.PodIPs, was.PodIPs) {
		errs = append(
			errs,
			dualAddresses(ips, path.Child("podIPs"), "may specify no more than one IP for each IP family")...)
	}
	if !Same(is.HostIPs, was.HostIPs) {
		errs = append(
			errs,
			dualAddresses(hosts, path.Child("hostIPs"), "may specify no more than one IP for each IP family")...)
	}
	seen := map[string]bool{}
	for i, c := range is.ResourceClaimStatuses {
		at := path.Child("resourceClaimStatuses").Index(i)
		known := false
		for _, claim := range old.Spec.ResourceClaims {
			known = known || claim.Name == c.Name
		}
		if !known {
			errs = append(
				errs,
				field.Invalid(at.Child("name"), c.Name, "must match the name of an entry in `spec.resourceClaims`"),
			)
		}
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
		if c.ResourceClaimName != nil {
			errs = append(errs, dns1123Subdomain(*c.ResourceClaimName, at.Child("resourceClaimName"))...)
		}
	}
	for i, c := range is.Conditions {
		at := path.Child("conditions").Index(i)
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Child("observedGeneration"), c.ObservedGeneration, notNegativeText))
		}
	}
	return errs
}

// dualAddresses requires at most one address of each family.
func dualAddresses(list []string, path *field.Path, text string) field.ErrorList {
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

func never(string, int32) bool { return false }

// mayRestart returns a function that reports whether a container that ended with an exit code may run again, by its own
// policy and rules or by the pod's policy.
func mayRestart(pods corev1.RestartPolicy, containers []corev1.Container) func(name string, code int32) bool {
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

// mayInitialize is mayRestart for init containers. An init container that succeeded may run again if the pod restarts,
// for example after a reboot of its node.
func mayInitialize(pods corev1.RestartPolicy, containers []corev1.Container) func(name string, code int32) bool {
	restarts := mayRestart(pods, containers)
	return func(name string, code int32) bool { return code == 0 || restarts(name, code) }
}

func stayTerminated(
	is, was []corev1.ContainerStatus,
	restarts func(name string, code int32) bool,
	path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i, before := range was {
		if before.State.Terminated == nil || restarts(before.Name, before.State.Terminated.ExitCode) {
			continue
		}
		for _, now := range is {
			if now.Name == before.Name && now.State.Terminated == nil {
				errs = append(
					errs,
					field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"),
				)
			}
		}
	}
	return errs
}
