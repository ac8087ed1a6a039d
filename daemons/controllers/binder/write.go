package binder

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/storage"
)

// annotationYes is the value of upstream's annotations.
const annotationYes = "yes"

// bind makes a claim and a volume refer to each other. The volume is written first: a claim's reference counts only if
// the volume refers to the claim too. If another client wrote in between, the write fails and the next sync decides
// again.
func (b *controller) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	v, err := b.nameClaim(ctx, claim, v)
	if err != nil {
		return err
	}
	if v, err = b.setPhase(ctx, v, corev1.VolumeBound, ""); err != nil {
		return err
	}
	updated := claim.DeepCopy()
	if updated.Spec.VolumeName != v.Name {
		updated.Spec.VolumeName = v.Name
		annotate(&updated.ObjectMeta, storage.AnnBoundByController, annotationYes)
	}
	annotate(&updated.ObjectMeta, storage.AnnBindCompleted, annotationYes)
	if !apiequality.Semantic.DeepEqual(updated, claim) {
		if claim, err = b.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, updated,
			metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("bind claim %s/%s: %w", updated.Namespace, updated.Name, err)
		}
	}
	return b.setClaim(ctx, claim, corev1.ClaimBound, v)
}

// nameClaim writes the reference to the claim into a volume. Before that, it reads the claim from the API server: a
// volume that refers to a deleted claim would be released.
func (b *controller) nameClaim(
	ctx context.Context,
	claim *corev1.PersistentVolumeClaim,
	v *corev1.PersistentVolume,
) (*corev1.PersistentVolume, error) {
	updated := v.DeepCopy()
	if !refersTo(v, claim) {
		annotate(&updated.ObjectMeta, storage.AnnBoundByController, annotationYes)
	}
	if ref := v.Spec.ClaimRef; ref == nil || !refersTo(v, claim) || ref.UID != claim.UID {
		live, err := b.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read claim %s/%s before it is bound: %w", claim.Namespace, claim.Name, err)
		}
		if live.UID != claim.UID || live.ResourceVersion != claim.ResourceVersion {
			return nil, fmt.Errorf("claim %s/%s has changed since it was decided about", claim.Namespace, claim.Name)
		}
		updated.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1",
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion}
	}
	if apiequality.Semantic.DeepEqual(updated, v) {
		return v, nil
	}
	updated, err := b.Client.CoreV1().PersistentVolumes().Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("bind volume %s to claim %s/%s: %w", v.Name, claim.Namespace, claim.Name, err)
	}
	return updated, nil
}

// unbind reverts what bind wrote into a volume: the whole reference, or only the UID if a user had reserved the volume
// for the claim's name.
func (b *controller) unbind(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	updated := v.DeepCopy()
	if _, ours := v.Annotations[storage.AnnBoundByController]; ours {
		updated.Spec.ClaimRef = nil
		delete(updated.Annotations, storage.AnnBoundByController)
	} else {
		updated.Spec.ClaimRef.UID = ""
	}
	updated, err := b.Client.CoreV1().PersistentVolumes().Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("unbind volume %s: %w", v.Name, err)
	}
	return updated, nil
}

// setPhase writes a volume's phase. The API server sets the transition time.
func (b *controller) setPhase(
	ctx context.Context,
	v *corev1.PersistentVolume,
	phase corev1.PersistentVolumePhase,
	message string,
) (*corev1.PersistentVolume, error) {
	if v.Status.Phase == phase && v.Status.Message == message {
		return v, nil
	}
	updated := v.DeepCopy()
	updated.Status.Phase, updated.Status.Message, updated.Status.Reason = phase, message, ""
	updated, err := b.Client.CoreV1().PersistentVolumes().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the phase of volume %s: %w", v.Name, err)
	}
	return updated, nil
}

// setClaim writes a claim's phase and what its volume offers. v is nil for a claim without a volume.
func (b *controller) setClaim(
	ctx context.Context,
	claim *corev1.PersistentVolumeClaim,
	phase corev1.PersistentVolumeClaimPhase,
	v *corev1.PersistentVolume,
) error {
	status := claimStatus(claim, phase, v)
	if apiequality.Semantic.DeepEqual(status, claim.Status) {
		return nil
	}
	updated := claim.DeepCopy()
	updated.Status = status
	if _, err := b.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the phase of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// claimStatus returns the new status of a claim. It sets the capacity when the claim is bound. Later the resizers own
// it, since the file system may be smaller than the volume.
func claimStatus(
	claim *corev1.PersistentVolumeClaim,
	phase corev1.PersistentVolumeClaimPhase,
	v *corev1.PersistentVolume,
) corev1.PersistentVolumeClaimStatus {
	status := *claim.Status.DeepCopy()
	status.Phase = phase
	if v == nil {
		status.AccessModes, status.Capacity, status.CurrentVolumeAttributesClassName = nil, nil, nil
		return status
	}
	status.AccessModes = slices.Clone(v.Spec.AccessModes)
	if claim.Status.Phase != phase {
		status.Capacity = v.Spec.Capacity.DeepCopy()
		status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	return status
}

func annotate(o *metav1.ObjectMeta, key, value string) {
	if _, ok := o.Annotations[key]; !ok {
		metav1.SetMetaDataAnnotation(o, key, value)
	}
}
