package provisioner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
)

// Growth returns how large a bound claim's volume becomes, or nil where nothing is to be done. A directory has no size: it grows by
// being said to be larger.
func Growth(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, class *storagev1.StorageClass) *resource.Quantity {
	if !directory.Provisioned(v) || class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion || claim.Status.Phase != corev1.ClaimBound ||
		claim.Spec.VolumeName != v.Name || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	size := claim.Spec.Resources.Requests.Storage().DeepCopy()
	if v.Spec.Capacity.Storage().Cmp(size) >= 0 {
		size = v.Spec.Capacity.Storage().DeepCopy()
	}
	if claim.Status.Capacity.Storage().Cmp(size) >= 0 {
		return nil
	}
	return &size
}

// expand lets a claim grow: its volume first, then what it says of itself.
func (p *controller) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if class.Provisioner != directory.Provisioner {
		return nil
	}
	v, err := p.volumes.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	size := Growth(claim, v, class)
	if size == nil {
		return nil
	}
	if v.Spec.Capacity.Storage().Cmp(*size) < 0 {
		larger := v.DeepCopy()
		larger.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: *size}
		if _, err := p.Client.CoreV1().PersistentVolumes().Update(ctx, larger, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("let volume %s grow: %w", v.Name, err)
		}
	}
	grown := claim.DeepCopy()
	grown.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *size}
	if _, err := p.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, grown, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("say that claim %s/%s has grown: %w", claim.Namespace, claim.Name, err)
	}
	p.Events.Event(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	return nil
}
