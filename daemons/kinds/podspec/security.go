package podspec

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

const maxSysctl = 253

var sysctlName = validate.Pattern(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

// validatePodSecurity checks the security context of a pod.
func validatePodSecurity(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.HostPID && value.OrZero(spec.ShareProcessNamespace) {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true,
			"ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if spec.HostUsers != nil && !*spec.HostUsers {
		for _, of := range []struct {
			name string
			host bool
		}{{"hostNetwork", spec.HostNetwork}, {"hostPID", spec.HostPID}, {"hostIPC", spec.HostIPC}} {
			if of.host {
				errs = append(errs, field.Forbidden(path.Child(of.name), "when `hostUsers` is false"))
			}
		}
	}
	s, path := spec.SecurityContext, path.Child("securityContext")
	if s == nil {
		return errs
	}
	errs = append(errs, validateIDs(s.RunAsUser, s.RunAsGroup, path)...)
	errs = append(errs, validateID(s.FSGroup, path.Child("fsGroup"))...)
	for i := range s.SupplementalGroups {
		errs = append(errs, validateID(&s.SupplementalGroups[i], path.Child("supplementalGroups").Index(i))...)
	}
	if p := s.FSGroupChangePolicy; p != nil {
		errs = append(errs, validate.Supported(*p,
			[]corev1.PodFSGroupChangePolicy{corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch},
			path.Child("fsGroupChangePolicy"))...)
	}
	if p := s.SupplementalGroupsPolicy; p != nil {
		errs = append(
			errs,
			validate.Supported(
				*p,
				[]corev1.SupplementalGroupsPolicy{
					corev1.SupplementalGroupsPolicyMerge,
					corev1.SupplementalGroupsPolicyStrict,
				},
				path.Child("supplementalGroupsPolicy"),
			)...)
	}
	if p := s.SELinuxChangePolicy; p != nil {
		errs = append(
			errs,
			validate.Supported(
				*p,
				[]corev1.PodSELinuxChangePolicy{
					corev1.SELinuxChangePolicyMountOption,
					corev1.SELinuxChangePolicyRecursive,
				},
				path.Child("seLinuxChangePolicy"),
			)...)
	}
	errs = append(errs, validateSysctls(s.Sysctls, spec, path.Child("sysctls"))...)
	errs = append(errs, validateSeccomp(s.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(s.AppArmorProfile, path.Child("appArmorProfile"))...)
	return append(errs, validateWindows(s.WindowsOptions, spec, path.Child("windowsOptions"))...)
}

func validateContainerSecurity(s *corev1.SecurityContext, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := validateIDs(s.RunAsUser, s.RunAsGroup, path)
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		if value.OrZero(s.Privileged) {
			errs = append(errs, field.Invalid(path, s,
				"cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if s.Capabilities != nil {
			for _, c := range s.Capabilities.Add {
				if c == "CAP_SYS_ADMIN" {
					errs = append(errs, field.Invalid(path, s,
						"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
				}
			}
		}
	}
	if p := s.ProcMount; p != nil {
		errs = append(errs, validate.Supported(*p,
			[]corev1.ProcMountType{corev1.DefaultProcMount, corev1.UnmaskedProcMount}, path.Child("procMount"))...)
		if *p == corev1.UnmaskedProcMount && (spec.HostUsers == nil || *spec.HostUsers) {
			errs = append(errs, field.Invalid(path.Child("procMount"), *p,
				"`hostUsers` must be false to use `Unmasked`"))
		}
	}
	errs = append(errs, validateSeccomp(s.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(s.AppArmorProfile, path.Child("appArmorProfile"))...)
	return append(errs, validateWindows(s.WindowsOptions, spec, path.Child("windowsOptions"))...)
}

func validateIDs(user, group *int64, path *field.Path) field.ErrorList {
	return append(validateID(user, path.Child("runAsUser")), validateID(group, path.Child("runAsGroup"))...)
}

func validateID(v *int64, path *field.Path) field.ErrorList {
	if v != nil && (*v < 0 || *v > math.MaxInt32) {
		return field.ErrorList{field.Invalid(path, *v, validation.InclusiveRangeError(0, math.MaxInt32))}
	}
	return nil
}

// validateSysctls rejects sysctls that would also affect the host.
func validateSysctls(list []corev1.Sysctl, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, sysctl := range list {
		at, name := path.Index(i).Child("name"), strings.ReplaceAll(sysctl.Name, "/", ".")
		switch {
		case sysctl.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(sysctl.Name) > maxSysctl || !sysctlName().MatchString(sysctl.Name):
			errs = append(errs, field.Invalid(at, sysctl.Name,
				"must have at most 253 characters and match regex "+sysctlName().String()))
		case seen[sysctl.Name]:
			errs = append(errs, field.Duplicate(at, sysctl.Name))
		case spec.HostNetwork && strings.HasPrefix(name, "net."):
			errs = append(errs, field.Invalid(at, sysctl.Name, "may not be specified when 'hostNetwork' is true"))
		case spec.HostIPC && (strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") ||
			name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")):
			errs = append(errs, field.Invalid(at, sysctl.Name, "may not be specified when 'hostIPC' is true"))
		}
		seen[sysctl.Name] = true
	}
	return errs
}

func validateSeccomp(p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	at := path.Child("localhostProfile")
	switch {
	case p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile == nil:
		return field.ErrorList{field.Required(at, "must be set when seccomp type is Localhost")}
	case p.Type == corev1.SeccompProfileTypeLocalhost:
		return validate.DescendingPath(*p.LocalhostProfile, at)
	}
	errs := validate.Supported(p.Type, []corev1.SeccompProfileType{
		corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault,
		corev1.SeccompProfileTypeUnconfined,
	}, path.Child("type"))
	if p.LocalhostProfile != nil {
		errs = append(errs, field.Invalid(at, *p.LocalhostProfile, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

func validateAppArmor(p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	at := path.Child("localhostProfile")
	if p.Type == "" {
		return field.ErrorList{field.Required(path.Child("type"), "type is required when appArmorProfile is set")}
	}
	errs := validate.Supported(p.Type, []corev1.AppArmorProfileType{
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault,
		corev1.AppArmorProfileTypeUnconfined,
	}, path.Child("type"))
	switch {
	case p.Type != corev1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(at, *p.LocalhostProfile, "can only be set when AppArmor type is Localhost"))
	case p.Type != corev1.AppArmorProfileTypeLocalhost:
	case strings.TrimSpace(value.OrZero(p.LocalhostProfile)) == "":
		errs = append(errs, field.Required(at, "must be set when AppArmor type is Localhost"))
	case strings.TrimSpace(*p.LocalhostProfile) != *p.LocalhostProfile:
		errs = append(errs, field.Invalid(at, *p.LocalhostProfile, "must not be padded with whitespace"))
	case len(*p.LocalhostProfile) > 4095:
		errs = append(errs, field.TooLong(at, *p.LocalhostProfile, 4095))
	}
	return errs
}

func validateWindows(w *corev1.WindowsSecurityContextOptions, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if w == nil {
		return nil
	}
	if spec.OS != nil && spec.OS.Name == corev1.Linux {
		return field.ErrorList{field.Forbidden(path, "windows options cannot be set for a linux pod")}
	}
	var errs field.ErrorList
	if n := w.GMSACredentialSpecName; n != nil {
		errs = append(errs, validate.DNSSubdomain(*n, path.Child("gmsaCredentialSpecName"))...)
	}
	if w.GMSACredentialSpec != nil && *w.GMSACredentialSpec == "" {
		errs = append(errs, field.Invalid(path.Child("gmsaCredentialSpec"), "",
			"gmsaCredentialSpec cannot be an empty string"))
	}
	if w.RunAsUserName != nil && *w.RunAsUserName == "" {
		errs = append(errs, field.Invalid(path.Child("runAsUserName"), "", "runAsUserName cannot be an empty string"))
	}
	return errs
}
