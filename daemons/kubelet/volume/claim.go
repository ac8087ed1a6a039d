package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClaimName returns the name of the claim of a pod's volume, or "" if the volume has none.
func ClaimName(p *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}

// claimVolume returns the persistent volume of a pod's volume. It verifies that claim and volume refer to each other,
// because a user who may write claims could name the volume of another claim.
func (m *Manager) claimVolume(ctx context.Context, p *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume, error) {
	name := ClaimName(p, v)
	claim, err := m.Source.Claim(ctx, p.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: failed to fetch PVC from API server: %w", p.Namespace, name,
			err)
	}
	if err := checkClaim(p, v, claim); err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: %w", p.Namespace, name, err)
	}
	pv, err := m.Source.Volume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err)
	}
	if err := checkBound(pv, claim); err != nil {
		return nil, err
	}
	return pv, checkVolumeMode(p, v, pv)
}

// checkClaim returns an error if a pod must not use a claim for its volume. An ephemeral claim belongs only to the pod
// for which it was created.
func checkClaim(p *corev1.Pod, v *corev1.Volume, claim *corev1.PersistentVolumeClaim) error {
	switch {
	case v.Ephemeral != nil && !metav1.IsControlledBy(claim, p):
		return fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name,
			p.Namespace, p.Name)
	case claim.DeletionTimestamp != nil:
		return errors.New("PVC is being deleted")
	case claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return errors.New("PVC is not bound")
	}
	return nil
}

// checkBound returns an error if a volume is not bound to a claim. The reference in the claim is not enough. The volume
// must refer to the same claim by UID, not to an earlier one of that name.
func checkBound(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	ref := pv.Spec.ClaimRef
	switch {
	case ref == nil:
		return fmt.Errorf(
			"found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	case ref.UID == "" || ref.UID != claim.UID:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name,
			ref.UID, claim.UID)
	case ref.Namespace != claim.Namespace || ref.Name != claim.Name:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef %s/%s does not point to claim %s/%s", pv.Name,
			ref.Namespace, ref.Name, claim.Namespace, claim.Name)
	}
	return nil
}
