package storage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

const claimUpdateText = "spec is immutable after creation except resources.requests and volumeAttributesClassName " +
	"for bound claims"

// validateClaimUpdate allows a claim to be bound and to get its class once. A bound claim may grow and change its
// VolumeAttributesClass.
func validateClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	path := field.NewPath("spec")
	errs := volume.ValidateClaim(&c.Spec, path)
	after, before := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	mirrorDataSources(before) // it may have been stored before the new field existed
	if before.VolumeName == "" {
		after.VolumeName = ""
	}
	errs = append(errs, validateSameClass(c, old)...)
	if named, marked := old.Annotations[corev1.BetaStorageClassAnnotation]; before.StorageClassName == nil &&
		(!marked || value.OrZero(after.StorageClassName) == named) {
		after.StorageClassName = nil
	}
	newSize, oldSize := after.Resources.Requests[corev1.ResourceStorage],
		before.Resources.Requests[corev1.ResourceStorage]
	if old.Status.Phase == corev1.ClaimBound {
		after.VolumeAttributesClassName = before.VolumeAttributesClassName
		if after.Resources.Requests != nil {
			after.Resources.Requests[corev1.ResourceStorage] = oldSize
		}
	}
	if !value.Same(after, before) {
		errs = append(errs, field.Forbidden(path, claimUpdateText))
	}
	// A request whose expansion failed may be reduced, but not below the volume's capacity.
	if capacity := old.Status.Capacity[corev1.ResourceStorage]; newSize.Cmp(oldSize) < 0 && newSize.Cmp(capacity) <= 0 {
		errs = append(errs, field.Forbidden(path.Child("resources", "requests", "storage"),
			"field can not be less than status.capacity"))
	}
	errs = append(errs, validate.Immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Status.CurrentVolumeAttributesClassName != nil &&
		!value.Same(c.Spec.VolumeAttributesClassName, old.Spec.VolumeAttributesClassName) {
		what := ""
		switch name := c.Spec.VolumeAttributesClassName; {
		case name == nil:
			what = "nil"
		case *name == "":
			what = "empty string"
		}
		if what != "" {
			errs = append(errs, field.Forbidden(path.Child("volumeAttributesClassName"),
				"update to "+what+" is forbidden when status.currentVolumeAttributesClassName is not nil"))
		}
	}
	return errs
}

// validateSameClass returns errors if the deprecated annotation for the class changes, unless it moves to the field.
func validateSameClass(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	after, stays := c.Annotations[corev1.BetaStorageClassAnnotation]
	before, marked := old.Annotations[corev1.BetaStorageClassAnnotation]
	moves := marked && old.Spec.StorageClassName == nil && c.Spec.StorageClassName != nil &&
		*c.Spec.StorageClassName == before &&
		(!stays || after == before)
	if after == before || moves {
		return nil
	}
	return field.ErrorList{
		field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation), after,
			validate.ImmutableText),
	}
}

// claimResizes lists the states of a resource's expansion.
var claimResizes = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizePending,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
}

func validateClaimStatusUpdate(c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	amount := func(q resource.Quantity, at *field.Path) {
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.Value(), "must be a valid resource quantity"))
		}
	}
	for name, q := range c.Status.Capacity {
		amount(q, path.Child("capacity").Key(string(name)))
	}
	for name, state := range c.Status.AllocatedResourceStatuses {
		at := path.Child("allocatedResourceStatus")
		errs = append(errs, validateClaimResource(name, at)...)
		if !slices.Contains(claimResizes, state) {
			errs = append(errs, validate.NotSupported(at, name, claimResizes))
		}
	}
	for name, q := range c.Status.AllocatedResources {
		at := path.Child("allocatedResources")
		if wrong := validateClaimResource(name, at); len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		amount(q, at.Key(string(name)))
	}
	return errs
}

// validateClaimResource checks the name of a claim's resource: storage, or a name outside of Kubernetes' own.
func validateClaimResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := validate.Invalid(path, string(name), validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if validate.IsNative(name) && name != corev1.ResourceStorage {
		return field.ErrorList{validate.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
}
