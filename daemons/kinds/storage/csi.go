package storage

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func CSIDrivers() *kind.Kind {
	return &kind.Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("CSIDriver"),
		Resource: "csidrivers", Singular: "csidriver", ConditionalUpdate: true,
		New: kind.New[storagev1.CSIDriver](), NewList: kind.New[storagev1.CSIDriverList](),
		Default: kind.Adapt(func(d *storagev1.CSIDriver) {
			value.SetDefault(&d.Spec.AttachRequired, true)
			value.SetDefault(&d.Spec.PodInfoOnMount, false)
			value.SetDefault(&d.Spec.StorageCapacity, false)
			value.SetDefault(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
			value.SetDefault(&d.Spec.RequiresRepublish, false)
			value.SetDefault(&d.Spec.SELinuxMount, false)
			if len(d.Spec.VolumeLifecycleModes) == 0 {
				d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
			}
		}),
		Validate:       kind.AdaptValidate(validateCSIDriver),
		ValidateUpdate: kind.AdaptValidateUpdate(validateCSIDriverUpdate),
		Columns: kind.NewColumns("AttachRequired:boolean", "PodInfoOnMount:boolean", "StorageCapacity:boolean",
			"TokenRequests", "RequiresRepublish:boolean", "Modes", "Age"),
		Row: kind.AdaptRow(func(d *storagev1.CSIDriver) []any {
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
				value.OrZero(d.Spec.AttachRequired), value.OrZero(d.Spec.PodInfoOnMount),
				value.OrZero(d.Spec.StorageCapacity), requests,
				value.OrZero(d.Spec.RequiresRepublish), strings.Join(modes, ","), cell.Age(d.CreationTimestamp),
			}
		}),
	}
}

func CSINodes() *kind.Kind {
	return &kind.Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("CSINode"),
		Resource: "csinodes", Singular: "csinode", ConditionalUpdate: true,
		New: kind.New[storagev1.CSINode](), NewList: kind.New[storagev1.CSINodeList](),
		Validate: kind.AdaptValidate(validateCSINode), ValidateUpdate: kind.AdaptValidateUpdate(validateCSINodeUpdate),
		Columns: kind.NewColumns("Drivers:integer", "Age"),
		Row: kind.AdaptRow(
			func(n *storagev1.CSINode) []any {
				return []any{int64(len(n.Spec.Drivers)), cell.Age(n.CreationTimestamp)}
			},
		),
	}
}

func VolumeAttachments() *kind.Kind {
	return &kind.Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		Resource: "volumeattachments", Singular: "volumeattachment", ConditionalUpdate: true,
		New: kind.New[storagev1.VolumeAttachment](), NewList: kind.New[storagev1.VolumeAttachmentList](),
		PrepareCreate: kind.Adapt(func(a *storagev1.VolumeAttachment) {
			a.Status = storagev1.VolumeAttachmentStatus{}
		}),
		PrepareUpdate: kind.AdaptUpdate(func(a, old *storagev1.VolumeAttachment) { a.Status = old.Status }),
		Validate:      kind.AdaptValidate(validateVolumeAttachment),
		ValidateUpdate: kind.AdaptValidateUpdate(func(a, old *storagev1.VolumeAttachment) field.ErrorList {
			return append(validateVolumeAttachment(a), validate.Immutable(a.Spec, old.Spec, field.NewPath("spec"))...)
		}),
		Columns: kind.NewColumns("Attacher", "PV", "Node", "Attached:boolean", "Age"),
		Row: kind.AdaptRow(func(a *storagev1.VolumeAttachment) []any {
			return []any{
				a.Spec.Attacher,
				value.OrZero(a.Spec.Source.PersistentVolumeName),
				a.Spec.NodeName,
				a.Status.Attached,
				cell.Age(a.CreationTimestamp),
			}
		}),
		Status: kind.NewStatus(func(to, from *storagev1.VolumeAttachment) { to.Status = *from.Status.DeepCopy() },
			validateAttachmentStatus).WithKeptMeta(),
	}
}

func CSIStorageCapacities() *kind.Kind {
	return &kind.Kind{
		GVK:      storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"),
		Resource: "csistoragecapacities", Singular: "csistoragecapacity", Namespaced: true, ConditionalUpdate: true,
		New: kind.New[storagev1.CSIStorageCapacity](), NewList: kind.New[storagev1.CSIStorageCapacityList](),
		Warnings: kind.AdaptWarnings(capacityWarnings),
		Validate: kind.AdaptValidate(validateStorageCapacity),
		ValidateUpdate: kind.AdaptValidateUpdate(func(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
			return append(append(validateStorageCapacity(c), validate.Immutable(c.NodeTopology, old.NodeTopology,
				field.NewPath("nodeTopology"))...), validate.Immutable(c.StorageClassName, old.StorageClassName,
				field.NewPath("storageClassName"))...)
		}),
		Columns: kind.NewColumns("StorageClassName", "Capacity"),
		Row: kind.AdaptRow(func(c *storagev1.CSIStorageCapacity) []any {
			capacity := "<unset>"
			if c.Capacity != nil {
				capacity = c.Capacity.String()
			}
			return []any{c.StorageClassName, capacity}
		}),
	}
}
