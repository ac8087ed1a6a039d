package binder

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/controllers/loop"
)

// liveClaim reads a claim and the volume that it names from the API server. It returns nil if the claim is gone or was
// replaced by another of the same name.
func (b *controller) liveClaim(
	ctx context.Context,
	before *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, []*corev1.PersistentVolume, error) {
	claim, err := b.Client.CoreV1().PersistentVolumeClaims(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
	if loop.IsAbsent(err, "persistentvolumeclaims", before.Name) || err == nil && claim.UID != before.UID {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("read claim %s/%s before it counts as lost: %w", before.Namespace, before.Name,
			err)
	}
	if claim.Spec.VolumeName == "" {
		return claim, nil, nil
	}
	v, err := b.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if loop.IsAbsent(err, "persistentvolumes", claim.Spec.VolumeName) {
		return claim, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("read volume %s before its claim counts as lost: %w", claim.Spec.VolumeName, err)
	}
	return claim, []*corev1.PersistentVolume{v}, nil
}

// liveVolume reads a volume and the claim that it names from the API server. It returns nil if the volume is gone or
// was replaced by another of the same name.
func (b *controller) liveVolume(
	ctx context.Context,
	before *corev1.PersistentVolume,
) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	v, err := b.Client.CoreV1().PersistentVolumes().Get(ctx, before.Name, metav1.GetOptions{})
	if loop.IsAbsent(err, "persistentvolumes", before.Name) || err == nil && v.UID != before.UID {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("read volume %s before it is given up: %w", before.Name, err)
	}
	if v.Spec.ClaimRef == nil {
		return v, nil, nil
	}
	claim, err := b.Client.CoreV1().
		PersistentVolumeClaims(v.Spec.ClaimRef.Namespace).
		Get(ctx, v.Spec.ClaimRef.Name, metav1.GetOptions{})
	if loop.IsAbsent(err, "persistentvolumeclaims", v.Spec.ClaimRef.Name) {
		return v, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("read the claim of volume %s before it is given up: %w", before.Name, err)
	}
	return v, claim, nil
}
