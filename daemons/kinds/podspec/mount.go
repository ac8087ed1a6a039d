package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func validateMounts(
	c *corev1.Container,
	spec *corev1.PodSpec,
	volumes map[string]bool,
	at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, m := range c.VolumeMounts {
		where := at.Child("volumeMounts").Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(where.Child("name"), ""))
		} else if !volumes[m.Name] {
			errs = append(errs, field.NotFound(where.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(where.Child("mountPath"), ""))
		} else if seen[m.MountPath] {
			errs = append(errs, field.Invalid(where.Child("mountPath"), m.MountPath, "must be unique"))
		}
		seen[m.MountPath] = true
		for name, sub := range map[string]string{"subPath": m.SubPath, "subPathExpr": m.SubPathExpr} {
			if sub != "" {
				errs = append(errs, validate.DescendingPath(sub, where.Child(name))...)
			}
		}
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(where.Child("subPathExpr"), m.SubPathExpr,
				"subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, validatePropagation(&m, c, where)...)
	}
	devices := map[string]bool{}
	for i, d := range c.VolumeDevices {
		where := at.Child("volumeDevices").Index(i)
		switch {
		case d.Name == "":
			errs = append(errs, field.Required(where.Child("name"), ""))
		case !volumes[d.Name]:
			errs = append(errs, field.NotFound(where.Child("name"), d.Name))
		case !canBeBlockDevice(spec, d.Name):
			errs = append(errs, field.Invalid(where.Child("name"), d.Name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		path := where.Child("devicePath")
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(path, ""))
		case devices[d.DevicePath]:
			errs = append(errs, field.Invalid(path, d.DevicePath, "must be unique"))
		case seen[d.DevicePath]:
			errs = append(errs, field.Invalid(path, d.DevicePath, "must not already exist as a path in volumeMounts"))
		default:
			errs = append(errs, validate.Backsteps(d.DevicePath, path)...)
		}
		devices[d.DevicePath] = true
	}
	return errs
}

// canBeBlockDevice reports whether a volume may be a block device. This is so if it uses a claim. A volume that the
// spec does not declare comes from a claim template of a StatefulSet.
func canBeBlockDevice(spec *corev1.PodSpec, name string) bool {
	i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	return i < 0 || spec.Volumes[i].PersistentVolumeClaim != nil || spec.Volumes[i].Ephemeral != nil
}

// validatePropagation checks whether mounts below a mount are visible, or writable, on the other side.
func validatePropagation(m *corev1.VolumeMount, c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := m.MountPropagation; p != nil {
		where := at.Child("mountPropagation")
		errs = append(errs, validate.Supported(*p, []corev1.MountPropagationMode{
			corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone,
		}, where)...)
		if *p == corev1.MountPropagationBidirectional &&
			(c.SecurityContext == nil || !value.OrZero(c.SecurityContext.Privileged)) {
			errs = append(errs, field.Forbidden(where,
				"Bidirectional mount propagation is available only to privileged containers"))
		}
	}
	if r := m.RecursiveReadOnly; r != nil {
		where := at.Child("recursiveReadOnly")
		errs = append(errs, validate.Supported(*r, []corev1.RecursiveReadOnlyMode{
			corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible,
		}, where)...)
		if *r != corev1.RecursiveReadOnlyDisabled && !m.ReadOnly {
			errs = append(errs, field.Forbidden(where, "may only be specified when readOnly is true"))
		}
		if p := m.MountPropagation; *r != corev1.RecursiveReadOnlyDisabled && p != nil &&
			*p != corev1.MountPropagationNone {
			errs = append(errs, field.Forbidden(where,
				"may only be specified when mountPropagation is None or not specified"))
		}
	}
	return errs
}
