package storage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

// Finalizers that hold claims, volumes and VolumeAttributesClasses while they are in use.
const (
	ClaimProtection           = "kubernetes.io/pvc-protection"
	VolumeProtection          = "kubernetes.io/pv-protection"
	AttributesClassProtection = "kubernetes.io/vac-protection"
)

func PersistentVolumeClaims() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
		Resource: "persistentvolumeclaims", Singular: "persistentvolumeclaim", ShortNames: []string{"pvc"},
		Namespaced: true,
		New:        kind.New[corev1.PersistentVolumeClaim](), NewList: kind.New[corev1.PersistentVolumeClaimList](),
		Default: kind.Adapt(volume.DefaultClaim),
		PrepareCreate: kind.Adapt(func(c *corev1.PersistentVolumeClaim) {
			c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
			prepareDataSource(&c.Spec, nil)
		}),
		PrepareUpdate: kind.AdaptUpdate(func(c, old *corev1.PersistentVolumeClaim) {
			c.Status = old.Status
			prepareDataSource(&c.Spec, &old.Spec)
		}),
		Warnings: kind.AdaptWarnings(claimWarnings),
		Validate: kind.AdaptValidate(func(c *corev1.PersistentVolumeClaim) field.ErrorList {
			return volume.ValidateClaim(&c.Spec, field.NewPath("spec"))
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(validateClaimUpdate),
		Columns: kind.NewColumns("Status", "Volume", "Capacity", "Access Modes", "StorageClass",
			"VolumeAttributesClass", "Age", "VolumeMode*"),
		Row: kind.AdaptRow(claimRow),
		Status: kind.NewStatus(func(to, from *corev1.PersistentVolumeClaim) { to.Status = *from.Status.DeepCopy() },
			validateClaimStatusUpdate),
	}
}

// prepareDataSource sets the data source of a claim. The old field drops references to anything but claims and
// snapshots, as it always did. The new field is validated instead. old is the stored spec, or nil. An existing data
// source stays.
func prepareDataSource(c, old *corev1.PersistentVolumeClaimSpec) {
	hadSource := old != nil && (old.DataSource != nil || old.DataSourceRef != nil)
	if d := c.DataSource; d != nil && c.DataSourceRef == nil && !hadSource {
		claim := d.Kind == "PersistentVolumeClaim" && value.OrZero(d.APIGroup) == ""
		snapshot := d.Kind == "VolumeSnapshot" && value.OrZero(d.APIGroup) == "snapshot.storage.k8s.io"
		if !claim && !snapshot {
			c.DataSource = nil
		}
	}
	mirrorDataSources(c)
}

// mirrorDataSources copies the data source between the old field and its replacement. The old field cannot refer to
// other namespaces.
func mirrorDataSources(c *corev1.PersistentVolumeClaimSpec) {
	switch d, ref := c.DataSource, c.DataSourceRef; {
	case d != nil && ref == nil:
		c.DataSourceRef = &corev1.TypedObjectReference{APIGroup: d.APIGroup, Kind: d.Kind, Name: d.Name}
	case d == nil && ref != nil && value.OrZero(ref.Namespace) == "":
		c.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

func claimRow(c *corev1.PersistentVolumeClaim) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size, modes := "", ""
	if c.Spec.VolumeName != "" {
		q := c.Status.Capacity[corev1.ResourceStorage]
		size, modes = q.String(), cell.AccessModes(c.Status.AccessModes)
	}
	class, attributes, mode := "", "<unset>", "<unset>"
	if beta, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		class = beta
	} else if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	if c.Spec.VolumeAttributesClassName != nil {
		attributes = *c.Spec.VolumeAttributesClassName
	}
	if c.Spec.VolumeMode != nil {
		mode = string(*c.Spec.VolumeMode)
	}
	return []any{phase, c.Spec.VolumeName, size, modes, class, attributes, cell.Age(c.CreationTimestamp), mode}
}
