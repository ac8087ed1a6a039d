package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Finalizers that hold claims, volumes and VolumeAttributesClasses while they are in use.
const (
	ClaimProtection           = "kubernetes.io/pvc-protection"
	VolumeProtection          = "kubernetes.io/pv-protection"
	AttributesClassProtection = "kubernetes.io/vac-protection"
)

func persistentVolumeClaims() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
		Resource: "persistentvolumeclaims", Singular: "persistentvolumeclaim", ShortNames: []string{"pvc"},
		Namespaced: true,
		New:        newOf[corev1.PersistentVolumeClaim](), NewList: newOf[corev1.PersistentVolumeClaimList](),
		Default: adapt(defaultClaim),
		PrepareCreate: adapt(func(c *corev1.PersistentVolumeClaim) {
			c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
			prepareDataSource(&c.Spec, nil)
		}),
		PrepareUpdate: adaptUpdate(func(c, old *corev1.PersistentVolumeClaim) {
			c.Status = old.Status
			prepareDataSource(&c.Spec, &old.Spec)
		}),
		Warnings: adaptWarnings(claimWarnings),
		Validate: adaptValidate(func(c *corev1.PersistentVolumeClaim) field.ErrorList {
			return validateClaimSpec(&c.Spec, field.NewPath("spec"))
		}),
		ValidateUpdate: adaptValidateUpdate(validateClaimUpdate),
		Columns: newColumns(
			"Status",
			"Volume",
			"Capacity",
			"Access Modes",
			"StorageClass",
			"VolumeAttributesClass",
			"Age",
			"VolumeMode*",
		),
		Row: adaptRow(claimRow),
		Status: newStatus(
			func(to, from *corev1.PersistentVolumeClaim) { to.Status = *from.Status.DeepCopy() },
			validateClaimStatusUpdate,
		),
	}
}

// prepareDataSource sets the data source of a claim. The old field drops references to anything but claims and
// snapshots, as it always did. The new field is validated instead. old is the stored spec, or nil. An existing data
// source stays.
func prepareDataSource(c, old *corev1.PersistentVolumeClaimSpec) {
	had := old != nil && (old.DataSource != nil || old.DataSourceRef != nil)
	if d := c.DataSource; d != nil && c.DataSourceRef == nil && !had {
		claim := d.Kind == "PersistentVolumeClaim" && valueOrZero(d.APIGroup) == ""
		snapshot := d.Kind == "VolumeSnapshot" && valueOrZero(d.APIGroup) == "snapshot.storage.k8s.io"
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
	case d == nil && ref != nil && valueOrZero(ref.Namespace) == "":
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
		size, modes = q.String(), accessModes(c.Status.AccessModes)
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
	return []any{phase, c.Spec.VolumeName, size, modes, class, attributes, age(c.CreationTimestamp), mode}
}
