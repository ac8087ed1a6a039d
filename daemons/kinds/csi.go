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
		New: made[storagev1.CSIDriver](), NewList: made[storagev1.CSIDriverList](),
		Default: does(func(d *storagev1.CSIDriver) {
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
		Validate: checks(validateCSIDriver), ValidateUpdate: compares(validateCSIDriverUpdate),
		Columns: columns(
			"AttachRequired:boolean",
			"PodInfoOnMount:boolean",
			"StorageCapacity:boolean",
			"TokenRequests",
			"RequiresRepublish:boolean",
			"Modes",
			"Age",
		),
		Row: row(func(d *storagev1.CSIDriver) []any {
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
				value(d.Spec.AttachRequired), value(d.Spec.PodInfoOnMount), value(d.Spec.StorageCapacity), requests,
				value(d.Spec.RequiresRepublish), strings.Join(modes, ","), age(d.CreationTimestamp),
			}
		}),
	}
}

func csiNodes() *Kind {
	return &Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("CSINode"),
		Resource: "csinodes", Singular: "csinode", ConditionalUpdate: true,
		New: made[storagev1.CSINode](), NewList: made[storagev1.CSINodeList](),
		Validate: checks(validateCSINode), ValidateUpdate: compares(validateCSINodeUpdate),
		Columns: columns("Drivers:integer", "Age"),
		Row: row(
			func(n *storagev1.CSINode) []any { return []any{int64(len(n.Spec.Drivers)), age(n.CreationTimestamp)} },
		),
	}
}

func volumeAttachments() *Kind {
	return &Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		Resource: "volumeattachments", Singular: "volumeattachment", ConditionalUpdate: true,
		New: made[storagev1.VolumeAttachment](), NewList: made[storagev1.VolumeAttachmentList](),
		PrepareCreate: does(func(a *storagev1.VolumeAttachment) { a.Status = storagev1.VolumeAttachmentStatus{} }),
		PrepareUpdate: updates(func(a, old *storagev1.VolumeAttachment) { a.Status = old.Status }),
		Validate:      checks(validateVolumeAttachment),
		ValidateUpdate: compares(func(a, old *storagev1.VolumeAttachment) field.ErrorList {
			return append(validateVolumeAttachment(a), immutable(a.Spec, old.Spec, field.NewPath("spec"))...)
		}),
		Columns: columns("Attacher", "PV", "Node", "Attached:boolean", "Age"),
		Row: row(func(a *storagev1.VolumeAttachment) []any {
			return []any{
				a.Spec.Attacher,
				value(a.Spec.Source.PersistentVolumeName),
				a.Spec.NodeName,
				a.Status.Attached,
				age(a.CreationTimestamp),
			}
		}),
		Status: status(
			func(to, from *storagev1.VolumeAttachment) { to.Status = *from.Status.DeepCopy() },
			validateAttachmentStatus,
		).keeping(),
	}
}

func csiStorageCapacities() *Kind {
	return &Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"),
		Resource: "csistoragecapacities", Singular: "csistoragecapacity", Namespaced: true, ConditionalUpdate: true,
		New: made[storagev1.CSIStorageCapacity](), NewList: made[storagev1.CSIStorageCapacityList](),
		Warnings: warns(capacityWarnings),
		Validate: checks(validateStorageCapacity),
		ValidateUpdate: compares(func(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
			return append(
				append(
					validateStorageCapacity(c),
					immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...),
				immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
		}),
		Columns: columns("StorageClassName", "Capacity"),
		Row: row(func(c *storagev1.CSIStorageCapacity) []any {
			capacity := "<unset>"
			if c.Capacity != nil {
				capacity = c.Capacity.String()
			}
			return []any{c.StorageClassName, capacity}
		}),
	}
}
