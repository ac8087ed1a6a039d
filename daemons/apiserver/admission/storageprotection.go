package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds"
)

// storageProtection has claims, volumes and classes of volumes' attributes held from their beginning, so that none goes
// while it is in use. The controllers let them go.
type storageProtection struct{}

// Admit adds the finalizer of the kind.
func (storageProtection) Admit(_ context.Context, a *api.Admission) error {
	if a.Operation != "CREATE" || a.Subresource != "" {
		return nil
	}
	add := func(to *[]string, finalizer string) {
		if !slices.Contains(*to, finalizer) {
			*to = append(*to, finalizer)
		}
	}
	switch o := a.Object.(type) {
	case *corev1.PersistentVolumeClaim:
		add(&o.Finalizers, kinds.ClaimProtection)
	case *corev1.PersistentVolume:
		add(&o.Finalizers, kinds.VolumeProtection)
	case *storagev1.VolumeAttributesClass:
		add(&o.Finalizers, kinds.AttributesClassProtection)
	}
	return nil
}
