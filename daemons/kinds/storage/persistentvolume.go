// Package storage declares volumes, claims, their classes and the kinds of CSI drivers.
package storage

import (
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

func PersistentVolumes() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("PersistentVolume"),
		Resource: "persistentvolumes", Singular: "persistentvolume", ShortNames: []string{"pv"},
		New: kind.New[corev1.PersistentVolume](), NewList: kind.New[corev1.PersistentVolumeList](),
		Default: kind.Adapt(func(v *corev1.PersistentVolume) {
			value.SetEmpty(&v.Status.Phase, corev1.VolumePending)
			value.SetEmpty(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
			value.SetDefault(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
			if v.Spec.HostPath != nil {
				value.SetDefault(&v.Spec.HostPath.Type, corev1.HostPathUnset)
			}
			if v.Spec.ISCSI != nil {
				value.SetEmpty(&v.Spec.ISCSI.ISCSIInterface, "default")
			}
			if v.Spec.RBD != nil {
				volume.DefaultRBD(&v.Spec.RBD.RBDPool, &v.Spec.RBD.RadosUser, &v.Spec.RBD.Keyring)
			}
			if v.Spec.AzureDisk != nil {
				volume.DefaultAzureDisk(v.Spec.AzureDisk)
			}
			if v.Spec.ScaleIO != nil {
				volume.DefaultScaleIO(&v.Spec.ScaleIO.StorageMode, &v.Spec.ScaleIO.FSType)
			}
		}),
		PrepareCreate: kind.Adapt(func(v *corev1.PersistentVolume) {
			v.Status = corev1.PersistentVolumeStatus{
				Phase:                   corev1.VolumePending,
				LastPhaseTransitionTime: new(metav1.NewTime(time.Now())),
			}
		}),
		PrepareUpdate:  kind.AdaptUpdate(func(v, old *corev1.PersistentVolume) { v.Status = old.Status }),
		Warnings:       kind.AdaptWarnings(persistentVolumeWarnings),
		Validate:       kind.AdaptValidate(validatePersistentVolume),
		ValidateUpdate: kind.AdaptValidateUpdate(validatePersistentVolumeUpdate),
		Columns: kind.NewColumns("Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
			"VolumeAttributesClass", "Reason", "Age", "VolumeMode*"),
		Row: kind.AdaptRow(persistentVolumeRow),
		Status: kind.NewStatus(func(to,
			from *corev1.PersistentVolume) {
			to.Status = *from.Status.DeepCopy()
		}).WithPrepare(
			kind.AdaptUpdate(setPhaseTime)),
	}
}

// setPhaseTime sets when a volume changed its phase, unless the writer sets it.
func setPhaseTime(v, old *corev1.PersistentVolume) {
	at := &v.Status.LastPhaseTransitionTime
	switch {
	case v.Status.Phase == old.Status.Phase && *at == nil:
		*at = old.Status.LastPhaseTransitionTime
	case v.Status.Phase != old.Status.Phase && (*at == nil || (*at).Equal(old.Status.LastPhaseTransitionTime)):
		*at = new(metav1.NewTime(time.Now()))
	}
}

func persistentVolumeRow(v *corev1.PersistentVolume) []any {
	claim, mode, class := "", "<unset>", "<unset>"
	if r := v.Spec.ClaimRef; r != nil {
		claim = r.Namespace + "/" + r.Name
	}
	if v.Spec.VolumeMode != nil {
		mode = string(*v.Spec.VolumeMode)
	}
	if v.Spec.VolumeAttributesClassName != nil {
		class = *v.Spec.VolumeAttributesClassName
	}
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	storageClass := v.Spec.StorageClassName
	if beta, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		storageClass = beta
	}
	return []any{
		size.String(), cell.AccessModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy), phase,
		claim, storageClass, class, v.Status.Reason, cell.Age(v.CreationTimestamp), mode,
	}
}

func validatePersistentVolume(v *corev1.PersistentVolume) field.ErrorList {
	path := field.NewPath("spec")
	errs := volume.ValidateAccessModes(v.Spec.AccessModes, path.Child("accessModes"))
	if len(v.Spec.Capacity) == 0 {
		errs = append(errs, field.Required(path.Child("capacity"), ""))
	} else if _, ok := v.Spec.Capacity[corev1.ResourceStorage]; !ok || len(v.Spec.Capacity) > 1 {
		errs = append(errs, validate.NotSupported(path.Child("capacity"), v.Spec.Capacity,
			[]corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, q := range v.Spec.Capacity {
		if q.Sign() <= 0 {
			errs = append(errs, field.Invalid(path.Child("capacity").Key(string(name)), q.String(),
				"must be greater than zero"))
		}
	}
	errs = append(errs, requireOneSource(reflect.ValueOf(v.Spec.PersistentVolumeSource), path)...)
	errs = append(errs, validatePersistentSource(v, path)...)
	if v.Spec.Local != nil {
		if v.Spec.Local.Path == "" {
			errs = append(errs, field.Required(path.Child("local", "path"), ""))
		}
		errs = append(errs, validate.Backsteps(v.Spec.Local.Path, path.Child("local", "path"))...)
		if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
			errs = append(errs, field.Required(path.Child("nodeAffinity"), "Local volume requires node affinity"))
		}
	}
	if v.Spec.StorageClassName != "" {
		errs = append(errs, validate.DNSSubdomain(v.Spec.StorageClassName, path.Child("storageClassName"))...)
	}
	return append(errs, validate.Supported(v.Spec.PersistentVolumeReclaimPolicy, []corev1.PersistentVolumeReclaimPolicy{
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle,
		corev1.PersistentVolumeReclaimRetain,
	}, path.Child("persistentVolumeReclaimPolicy"))...)
}

// requireOneSource requires that exactly one field of a structure of volume sources is set.
func requireOneSource(sources reflect.Value, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	for i := range sources.NumField() {
		if sources.Field(i).IsNil() {
			continue
		}
		if found {
			name, _, _ := strings.Cut(sources.Type().Field(i).Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 volume type"))
		}
		found = true
	}
	if !found {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	return errs
}

// validatePersistentVolumeUpdate requires that the source stays the same. A secret for expansion may be added once.
func validatePersistentVolumeUpdate(v, old *corev1.PersistentVolume) field.ErrorList {
	errs := validatePersistentVolume(v)
	path := field.NewPath("spec")
	after, before := v.Spec.PersistentVolumeSource.DeepCopy(), &old.Spec.PersistentVolumeSource
	if after.CSI != nil && before.CSI != nil && before.CSI.ControllerExpandSecretRef == nil {
		after.CSI.ControllerExpandSecretRef = nil
	}
	if !value.Same(after, before) {
		errs = append(errs, field.Forbidden(path.Child("persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation"))
	}
	errs = append(errs, validate.Immutable(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Spec.NodeAffinity != nil {
		errs = append(errs, validate.Immutable(v.Spec.NodeAffinity,
			renameLabels(old.Spec.NodeAffinity, v.Spec.NodeAffinity), field.NewPath("nodeAffinity"))...)
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(path.Child("volumeAttributesClassName"),
			"update from non-nil value to nil is forbidden"))
	}
	return errs
}

// renamedLabels maps old names of node labels to the present ones.
var renamedLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable, "beta.kubernetes.io/os": corev1.LabelOSStable,
	"beta.kubernetes.io/arch": corev1.LabelArchStable,
}

// renameLabels returns the node affinity of a volume with the labels that a change renames under their new names.
// Renaming labels without changing the meaning then counts as no change.
func renameLabels(before, after *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	if after == nil || after.Required == nil || before.Required == nil ||
		len(after.Required.NodeSelectorTerms) != len(before.Required.NodeSelectorTerms) {
		return before
	}
	before = before.DeepCopy()
	for i, term := range after.Required.NodeSelectorTerms {
		old := before.Required.NodeSelectorTerms[i].MatchExpressions
		for j := range min(len(old), len(term.MatchExpressions)) {
			if now, ok := renamedLabels[old[j].Key]; ok && term.MatchExpressions[j].Key == now {
				old[j].Key = now
			}
		}
	}
	return before
}
