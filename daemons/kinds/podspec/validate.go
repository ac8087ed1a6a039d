package podspec

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

// ValidatePod validates a new pod.
func ValidatePod(pod *corev1.Pod) field.ErrorList {
	errs := validateSpec(&pod.Spec, field.NewPath("spec"))
	if len(pod.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "ephemeralContainers"), "cannot be set on create"))
	}
	return append(errs, validateClaimNames(pod)...)
}

// validateClaimNames checks the names of the claims that are created for ephemeral volumes.
func validateClaimNames(pod *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || pod.Name == "" || v.Name == "" {
			continue
		}
		claim := pod.Name + "-" + v.Name
		for _, text := range validate.DNSSubdomainNameErrors(claim, false) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "volumes").Index(i).Child("name"), v.Name,
				fmt.Sprintf("PVC name %q: %v", claim, text)))
		}
	}
	return errs
}

// ValidateTemplate validates the pod template of any kind.
func ValidateTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	errs = append(errs, validateSpec(&t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"),
			"ephemeral containers not allowed in pod template"))
	}
	return errs
}

func validateSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	volumes, errs := validateVolumes(spec.Volumes, path.Child("volumes"))
	errs = append(errs, validateContainers(spec, volumes, path)...)
	errs = append(errs, validate.Supported(spec.RestartPolicy, []corev1.RestartPolicy{
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever,
	}, path.Child("restartPolicy"))...)
	errs = append(errs, validateDNS(spec, path)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validatePodSecurity(spec, path)...)
	errs = append(errs, validatePodClaims(spec, path)...)
	if spec.Affinity != nil {
		errs = append(errs, validateAffinity(spec.Affinity, path.Child("affinity"))...)
	}
	errs = append(errs, ValidateTolerations(spec.Tolerations, path.Child("tolerations"))...)
	errs = append(errs, validateSpread(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	for _, name := range []struct {
		field, v string
		check    func(string) []string
	}{
		{"serviceAccountName", spec.ServiceAccountName, validation.IsDNS1123Subdomain},
		{"nodeName", spec.NodeName, validation.IsDNS1123Subdomain},
		{"hostname", spec.Hostname, validation.IsDNS1123Label},
		{"subdomain", spec.Subdomain, validation.IsDNS1123Label},
		{"priorityClassName", spec.PriorityClassName, validation.IsDNS1123Subdomain},
		{"schedulerName", spec.SchedulerName, validation.IsDNS1123Subdomain},
		{"runtimeClassName", value.OrZero(spec.RuntimeClassName), validation.IsDNS1123Subdomain},
	} {
		if name.v != "" {
			errs = append(errs, validate.Invalid(path.Child(name.field), name.v, name.check(name.v))...)
		}
	}
	if s := spec.ActiveDeadlineSeconds; s != nil && (*s < 1 || *s > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *s,
			validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, validate.IPAddress(alias.IP, at.Child("ip"))...)
		for j, name := range alias.Hostnames {
			errs = append(errs, validate.DNSSubdomain(name, at.Child("hostnames").Index(j))...)
		}
	}
	errs = append(errs, validateGates(spec, path)...)
	if p := spec.PreemptionPolicy; p != nil {
		errs = append(errs, validate.Supported(*p,
			[]corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever},
			path.Child("preemptionPolicy"))...)
	}
	if spec.OS != nil {
		errs = append(errs, validate.Supported(spec.OS.Name, []corev1.OSName{corev1.Linux, corev1.Windows},
			path.Child("os", "name"))...)
	}
	errs = append(errs, validate.Quantities(spec.Overhead, path.Child("overhead"))...)
	errs = append(errs, validateHostname(spec, path)...)
	if len(spec.SchedulingGates) > 0 && spec.NodeName != "" {
		errs = append(errs, field.Forbidden(path.Child("nodeName"),
			"cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

func validateGates(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, gate := range spec.SchedulingGates {
		at := path.Child("schedulingGates").Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(gate.Name, at.Child("name"))...)
		if seen[gate.Name] {
			errs = append(errs, field.Duplicate(at, gate.Name))
		}
		seen[gate.Name] = true
	}
	for i, gate := range spec.ReadinessGates {
		at := path.Child("readinessGates").Index(i).Child("conditionType")
		errs = append(errs, validate.Invalid(at, string(gate.ConditionType),
			validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	return errs
}

// maxHostname is the kernel's limit in bytes.
const maxHostname = 64

func validateHostname(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.HostnameOverride == nil {
		return nil
	}
	at, name := path.Child("hostnameOverride"), *spec.HostnameOverride
	errs := validate.DNSSubdomain(name, at)
	if len(name) > maxHostname {
		errs = append(errs, field.TooLong(at, name, maxHostname))
	}
	if value.OrZero(spec.SetHostnameAsFQDN) {
		errs = append(errs, field.Forbidden(at, "may not be specified when `setHostnameAsFQDN` is true"))
	}
	if spec.HostNetwork {
		errs = append(errs, field.Forbidden(at, "may not be specified when `hostNetwork` is true"))
	}
	return errs
}

// Limits of resolvers for search paths: their number, and their total length in bytes.
const (
	maxSearches       = 32
	maxSearchesLength = 2048
)

func validateDNS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := validate.Supported(spec.DNSPolicy, []corev1.DNSPolicy{
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone,
	}, path.Child("dnsPolicy"))
	at := path.Child("dnsConfig")
	if spec.DNSPolicy == corev1.DNSNone && (spec.DNSConfig == nil || len(spec.DNSConfig.Nameservers) == 0) {
		errs = append(errs, field.Required(at.Child("nameservers"),
			"must provide at least one DNS nameserver when `dnsPolicy` is None"))
	}
	if spec.DNSConfig == nil {
		return errs
	}
	if n := spec.DNSConfig.Nameservers; len(n) > 3 {
		errs = append(errs, field.Invalid(at.Child("nameservers"), n, "must not have more than 3 nameservers"))
	}
	for i, ns := range spec.DNSConfig.Nameservers {
		errs = append(errs, validate.IPAddress(ns, at.Child("nameservers").Index(i))...)
	}
	if s := spec.DNSConfig.Searches; len(s) > maxSearches {
		errs = append(errs, field.Invalid(at.Child("searches"), s, fmt.Sprintf(
			"must not have more than %d search paths", maxSearches)))
	}
	if s := strings.Join(spec.DNSConfig.Searches, " "); len(s) > maxSearchesLength {
		errs = append(errs, field.Invalid(at.Child("searches"), spec.DNSConfig.Searches, fmt.Sprintf(
			"must not have more than %d characters (including spaces) in the search list", maxSearchesLength)))
	}
	for i, search := range spec.DNSConfig.Searches {
		if search != "." {
			name := strings.TrimSuffix(search, ".")
			errs = append(errs, validate.Invalid(at.Child("searches").Index(i), name,
				validation.IsDNS1123SubdomainWithUnderscore(name))...)
		}
	}
	for i, o := range spec.DNSConfig.Options {
		if o.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}
