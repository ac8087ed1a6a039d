package kinds

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func csiDrivers() *Kind {
	return &Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("CSIDriver"),
		Resource: "csidrivers", Singular: "csidriver", ConditionalUpdate: true,
		New: newOf[storagev1.CSIDriver](), NewList: newOf[storagev1.CSIDriverList](),
		Default: adapt(func(d *storagev1.CSIDriver) {
			setDefault(&d.Spec.AttachRequired, true)
			setDefault(&d.Spec.PodInfoOnMount, false)
			setDefault(&d.Spec.StorageCapacity, false)
			setDefault(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
			setDefault(&d.Spec.RequiresRepublish, false)
			setDefault(&d.Spec.SELinuxMount, false)
			if len(d.Spec.VolumeLifecycleModes) == 0 {
				d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
			}
		}),
		Validate: adaptValidate(validateCSIDriver), ValidateUpdate: adaptValidateUpdate(validateCSIDriverUpdate),
		Columns: newColumns(
			"AttachRequired:boolean",
			"PodInfoOnMount:boolean",
			"StorageCapacity:boolean",
			"TokenRequests",
			"RequiresRepublish:boolean",
			"Modes",
			"Age",
		),
		Row: adaptRow(func(d *storagev1.CSIDriver) []any {
			modes, tokens := []string{}, []string{}
			for _, m := range d.Spec.VolumeLifecycleModes {
				modes = append(modes, string(m))
			}
			for _, t := range d.Spec.TokenRequests {
				tokens = append(tokens, t.Audience)
			}
			requests := "<unset>"
			if len(tokens) > 0 {
				requests = strings.Join(tokens, ",")
			}
			return []any{
				valueOrZero(d.Spec.AttachRequired), valueOrZero(d.Spec.PodInfoOnMount),
				valueOrZero(d.Spec.StorageCapacity), requests,
				valueOrZero(d.Spec.RequiresRepublish), strings.Join(modes, ","), age(d.CreationTimestamp),
			}
		}),
	}
}

func csiNodes() *Kind {
	return &Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("CSINode"),
		Resource: "csinodes", Singular: "csinode", ConditionalUpdate: true,
		New: newOf[storagev1.CSINode](), NewList: newOf[storagev1.CSINodeList](),
		Validate: adaptValidate(validateCSINode), ValidateUpdate: adaptValidateUpdate(validateCSINodeUpdate),
		Columns: newColumns("Drivers:integer", "Age"),
		Row: adaptRow(
			func(n *storagev1.CSINode) []any { return []any{int64(len(n.Spec.Drivers)), age(n.CreationTimestamp)} },
		),
	}
}

func volumeAttachments() *Kind {
	return &Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		Resource: "volumeattachments", Singular: "volumeattachment", ConditionalUpdate: true,
		New: newOf[storagev1.VolumeAttachment](), NewList: newOf[storagev1.VolumeAttachmentList](),
		PrepareCreate: adapt(func(a *storagev1.VolumeAttachment) { a.Status = storagev1.VolumeAttachmentStatus{} }),
		PrepareUpdate: adaptUpdate(func(a, old *storagev1.VolumeAttachment) { a.Status = old.Status }),
		Validate:      adaptValidate(validateVolumeAttachment),
		ValidateUpdate: adaptValidateUpdate(func(a, old *storagev1.VolumeAttachment) field.ErrorList {
			return append(validateVolumeAttachment(a), requireImmutable(a.Spec, old.Spec, field.NewPath("spec"))...)
		}),
		Columns: newColumns("Attacher", "PV", "Node", "Attached:boolean", "Age"),
		Row: adaptRow(func(a *storagev1.VolumeAttachment) []any {
			return []any{
				a.Spec.Attacher,
				valueOrZero(a.Spec.Source.PersistentVolumeName),
				a.Spec.NodeName,
				a.Status.Attached,
				age(a.CreationTimestamp),
			}
		}),
		Status: newStatus(
			func(to, from *storagev1.VolumeAttachment) { to.Status = *from.Status.DeepCopy() },
			validateAttachmentStatus,
		).withKeptMeta(),
	}
}

func csiStorageCapacities() *Kind {
	return &Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"),
		Resource: "csistoragecapacities", Singular: "csistoragecapacity", Namespaced: true, ConditionalUpdate: true,
		New: newOf[storagev1.CSIStorageCapacity](), NewList: newOf[storagev1.CSIStorageCapacityList](),
		Warnings: adaptWarnings(capacityWarnings),
		Validate: adaptValidate(validateStorageCapacity),
		ValidateUpdate: adaptValidateUpdate(func(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
			return append(
				append(
					validateStorageCapacity(c),
					requireImmutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...),
				requireImmutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
		}),
		Columns: newColumns("StorageClassName", "Capacity"),
		Row: adaptRow(func(c *storagev1.CSIStorageCapacity) []any {
			capacity := "<unset>"
			if c.Capacity != nil {
				capacity = c.Capacity.String()
			}
			return []any{c.StorageClassName, capacity}
		}),
	}
}
