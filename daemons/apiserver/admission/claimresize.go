package admission

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"clusterctl/daemons/api"
)

// claimResize lets claims grow only if their storage class allows volume expansion.
type claimResize struct{ objects api.Objects }

// Validate checks updates that request more storage.
func (p *claimResize) Validate(_ context.Context, a *api.Admission) error {
	if !isOperation(a, "UPDATE", claimsGR) {
		return nil
	}
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	old, existed := a.Old.(*corev1.PersistentVolumeClaim)
	if !ok || !existed || claim.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return forbidden(a, errors.New("only bound persistent volume claims can be expanded"))
	}
	name := old.Annotations[corev1.BetaStorageClassAnnotation]
	if name == "" && claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	if name != "" {
		obj, _ := p.objects.Get(resourceName{Group: storagev1.GroupName, Resource: "storageclasses"}, "", name)
		if class, ok := obj.(*storagev1.StorageClass); ok && class.AllowVolumeExpansion != nil &&
			*class.AllowVolumeExpansion {
			return nil
		}
	}
	return forbidden(a, errors.New("only dynamically provisioned pvc can be resized and the storageclass that "+
		"provisions the pvc must support resize"))
}
