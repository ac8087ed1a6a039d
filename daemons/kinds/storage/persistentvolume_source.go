package storage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/volume"
)

// validatePersistentSource checks a volume's source, its options, and the nodes that can use it.
func validatePersistentSource(v *corev1.PersistentVolume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if h := v.Spec.HostPath; h != nil {
		errs = append(errs, volume.ValidateHostPath(h, at.Child("hostPath"))...)
		if h.Path == "/" && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
			errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"),
				"may not be 'recycle' for a hostPath mount of '/'"))
		}
	}
	if n := v.Spec.NFS; n != nil {
		errs = append(errs, volume.ValidateNFS(n, at.Child("nfs"))...)
	}
	if c := v.Spec.CSI; c != nil {
		errs = append(errs, volume.ValidateDriverName(c.Driver, at.Child("csi", "driver"))...)
		errs = append(errs, validate.Required(c.VolumeHandle, at.Child("csi", "volumeHandle"), "")...)
	}
	errs = append(errs, volume.ValidateLegacy(volume.LegacyOfPersistent(&v.Spec.PersistentVolumeSource), at)...)
	if m := v.Spec.VolumeMode; m != nil {
		errs = append(errs, validate.Supported(*m,
			[]corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem},
			at.Child("volumeMode"))...)
	}
	if a := v.Spec.NodeAffinity; a != nil {
		where := at.Child("nodeAffinity", "required")
		if a.Required == nil {
			errs = append(errs, field.Required(where, "must specify required node constraints"))
		} else {
			if len(a.Required.NodeSelectorTerms) == 0 {
				errs = append(errs, field.Required(where.Child("nodeSelectorTerms"), "must have at least one node "+
					"selector term"))
			}
			for i, t := range a.Required.NodeSelectorTerms {
				errs = append(errs, validate.NodeTerm(t, where.Child("nodeSelectorTerms").Index(i))...)
			}
		}
	}
	errs = append(errs, volume.ValidateAttributesClassName(v.Spec.VolumeAttributesClassName,
		at.Child("volumeAttributesClassName"))...)
	if v.Spec.VolumeAttributesClassName != nil && v.Spec.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
	}
	return errs
}
