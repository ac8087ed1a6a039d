package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds/storage"
)

// storageProtection adds finalizers to new claims, volumes and volume attributes classes, so that none is deleted while
// it is in use. The controllers remove the finalizers.
type storageProtection struct{}

// Admit adds the kind's finalizer.
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
		add(&o.Finalizers, storage.ClaimProtection)
	case *corev1.PersistentVolume:
		add(&o.Finalizers, storage.VolumeProtection)
	case *storagev1.VolumeAttributesClass:
		add(&o.Finalizers, storage.AttributesClassProtection)
	}
	return nil
}
