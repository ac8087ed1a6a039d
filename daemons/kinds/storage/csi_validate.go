package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

func validateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	path, s := field.NewPath("spec"), &d.Spec
	errs := volume.ValidateDriverName(d.Name, field.NewPath("metadata", "name"))
	errs = append(errs, validate.Supported(value.OrZero(s.FSGroupPolicy), []storagev1.FSGroupPolicy{
		storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy,
	}, path.Child("fsGroupPolicy"))...)
	for _, m := range s.VolumeLifecycleModes {
		errs = append(errs, validate.Supported(m, []storagev1.VolumeLifecycleMode{
			storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent,
		}, path.Child("volumeLifecycleModes"))...)
	}
	const shortest, longest = 10 * 60, 1 << 32
	audiences := map[string]bool{}
	for i, r := range s.TokenRequests {
		at := path.Child("tokenRequests").Index(i)
		if audiences[r.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), r.Audience))
		}
		audiences[r.Audience] = true
		switch seconds := r.ExpirationSeconds; {
		case seconds == nil:
		case *seconds < shortest:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *seconds,
				"may not specify a duration less than 10 minutes"))
		case *seconds > longest:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *seconds,
				"may not specify a duration larger than 2^32 seconds"))
		}
	}
	if p := s.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < 10 {
		errs = append(errs, field.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *p,
			"must be greater than or equal to 10 seconds"))
	}
	return errs
}

func validateCSIDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	path := field.NewPath("spec")
	errs := append(validateCSIDriver(d), validate.Immutable(d.Spec.AttachRequired, old.Spec.AttachRequired,
		path.Child("attachRequired"))...)
	return append(errs, validate.Immutable(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes,
		path.Child("volumeLifecycleModes"))...)
}

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	const longest = 192 // maximum length of a driver's name for the node, in bytes
	var errs field.ErrorList
	drivers := map[string]bool{}
	for i, d := range n.Spec.Drivers {
		at := field.NewPath("spec", "drivers").Index(i)
		errs = append(errs, volume.ValidateDriverName(d.Name, at.Child("name"))...)
		if drivers[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		drivers[d.Name] = true
		switch {
		case d.NodeID == "":
			errs = append(errs, field.Required(at.Child("nodeID"), ""))
		case len(d.NodeID) > longest:
			errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID, "must be 192 characters or less"))
		}
		if a := d.Allocatable; a != nil && a.Count != nil && *a.Count < 0 {
			errs = append(errs, field.Invalid(at.Child("allocatable", "count"), *a.Count, validate.NotNegativeText))
		}
		keys := map[string]bool{}
		for _, key := range d.TopologyKeys {
			if keys[key] {
				errs = append(errs, field.Duplicate(at.Child("topologyKeys"), key))
			}
			keys[key] = true
			errs = append(errs, validate.Invalid(at.Child("topologyKeys"), key, validation.IsQualifiedName(key))...)
		}
	}
	return errs
}

// validateCSINodeUpdate allows drivers to be added and removed, and their allocatable counts to change. Other fields of
// a driver are immutable.
func validateCSINodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs := validateCSINode(n)
	for i, d := range n.Spec.Drivers {
		for _, before := range old.Spec.Drivers {
			if d.Name != before.Name {
				continue
			}
			d, before = *d.DeepCopy(), *before.DeepCopy()
			d.Allocatable, before.Allocatable = nil, nil
			if !equality.Semantic.DeepEqual(d, before) {
				errs = append(errs, field.Invalid(field.NewPath("spec", "drivers").Index(i), d, validate.ImmutableText))
			}
		}
	}
	return errs
}

func validateVolumeAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	path := field.NewPath("spec")
	errs := volume.ValidateDriverName(a.Spec.Attacher, path.Child("attacher"))
	source, name := path.Child("source"), a.Spec.Source.PersistentVolumeName
	switch inline := a.Spec.Source.InlineVolumeSpec; {
	case inline == nil && name == nil:
		errs = append(errs, field.Required(source,
			"must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case inline != nil && name != nil:
		errs = append(errs, field.Forbidden(source,
			"must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case name != nil && *name == "":
		errs = append(errs, field.Required(source.Child("persistentVolumeName"),
			"must specify non empty persistentVolumeName"))
	case name != nil:
		errs = append(errs, validate.DNSSubdomain(*name, source.Child("persistentVolumeName"))...)
	}
	return append(errs, validate.DNSSubdomain(a.Spec.NodeName, path.Child("nodeName"))...)
}

func validateStorageCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := validate.DNSSubdomain(c.StorageClassName, field.NewPath("storageClassName"))
	if c.NodeTopology != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(c.NodeTopology,
			metavalidation.LabelSelectorValidationOptions{}, field.NewPath("nodeTopology"))...)
	}
	for name, q := range map[string]*resource.Quantity{"capacity": c.Capacity,
		"maximumVolumeSize": c.MaximumVolumeSize} {
		if q != nil && q.Sign() < 0 {
			errs = append(errs, field.Invalid(field.NewPath(name), q.String(), validate.NotNegativeText))
		}
	}
	return errs
}

func validateAttachmentStatus(a, _ *storagev1.VolumeAttachment) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	size := 0
	for k, v := range a.Status.AttachmentMetadata {
		size += len(k) + len(v)
	}
	if size > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(path.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	for _, side := range []struct {
		name string
		e    *storagev1.VolumeError
	}{{"attachError", a.Status.AttachError}, {"detachError", a.Status.DetachError}} {
		if side.e != nil && len(side.e.Message) > maxVolumeError {
			errs = append(errs, field.TooLong(path.Child(side.name, "message"), "", maxVolumeError))
		}
	}
	return errs
}

// Limits for what a driver reports about an attachment, in bytes.
const (
	maxVolumeError        = 1024
	maxAttachmentMetadata = 256 << 10
)
