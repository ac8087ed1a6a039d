package provisioner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
)

// isBound reports whether a claim and a volume are bound to each other.
func isBound(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	return claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName == v.Name && v.Spec.ClaimRef != nil &&
		v.Spec.ClaimRef.UID == claim.UID
}

// Growth returns the new size of a bound claim's volume, or nil if it does not grow. Admission has already checked that
// the class allows expansion. After a failed expansion, the claim may ask for less; the present request counts.
func Growth(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) *resource.Quantity {
	if !directory.IsProvisioned(v) || !isBound(claim, v) {
		return nil
	}
	size := claim.Spec.Resources.Requests.Storage().DeepCopy()
	if claim.Status.Capacity.Storage().Cmp(size) >= 0 {
		return nil
	}
	return &size
}

// expand enlarges a claim's volume: the directory first, then the volume object, then the claim's status. Only the node
// limits a directory's size, so the expansion is complete once the node has answered. No pod has to be started for it.
func (p *controller) expand(
	ctx context.Context,
	claim *corev1.PersistentVolumeClaim,
	v *corev1.PersistentVolume,
) error {
	size := Growth(claim, v)
	if size == nil {
		return nil
	}
	claim, err := p.writeStatus(ctx, claim, expandingStatus(claim.Status, *size, p.Now()))
	if err != nil {
		return err
	}
	if claim == nil {
		return nil
	}
	p.Events.Eventf(claim, corev1.EventTypeNormal, "Resizing", "External resizer is resizing volume %s", v.Name)
	if err := p.enlargeVolume(ctx, v, *size); err != nil {
		p.Events.Eventf(claim, corev1.EventTypeWarning, "VolumeResizeFailed",
			"resize volume %q by resizer %q failed: %v", v.Name, directory.Provisioner, err)
		_, failed := p.writeStatus(ctx, claim,
			expansionFailedStatus(claim.Status, err, apierrors.IsInvalid(err), p.Now()))
		if failed != nil {
			return failed
		}
		return fmt.Errorf("let volume %s grow: %w", v.Name, err)
	}
	if claim, err = p.writeStatus(ctx, claim, expandedStatus(claim.Status, *size)); err == nil && claim != nil {
		p.Events.Event(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	}
	return err
}

// enlargeVolume asks the node to resize the directory, and writes the new capacity to the volume.
func (p *controller) enlargeVolume(ctx context.Context, v *corev1.PersistentVolume, size resource.Quantity) error {
	node := v.Annotations[directory.NodeAnnotation]
	if node == "" || v.Spec.Local == nil || v.Spec.Local.Path != directory.Path(v.Name) {
		return fmt.Errorf("the volume does not say on which node it lies (annotation %s), or is not at %s",
			directory.NodeAnnotation, directory.Path(v.Name))
	}
	if err := p.grow(ctx, node, v.Name, size.Value()); err != nil {
		return err
	}
	if v.Spec.Capacity.Storage().Cmp(size) == 0 {
		return nil
	}
	updated := v.DeepCopy()
	updated.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	_, err := p.Client.CoreV1().PersistentVolumes().Update(ctx, updated, metav1.UpdateOptions{})
	return err
}

// expandingStatus returns the status of a claim whose volume is being expanded.
func expandingStatus(
	before corev1.PersistentVolumeClaimStatus,
	size resource.Quantity,
	now time.Time,
) corev1.PersistentVolumeClaimStatus {
	s := *before.DeepCopy()
	allocated, named := s.AllocatedResources[corev1.ResourceStorage]
	state := s.AllocatedResourceStatuses[corev1.ResourceStorage]
	if state == corev1.PersistentVolumeClaimControllerResizeInfeasible &&
		named &&
		allocated.Cmp(size) == 0 {
		return s // an infeasible expansion is tried again without being announced again
	}
	setAllocated(&s, size, corev1.PersistentVolumeClaimControllerResizeInProgress)
	s.Conditions = withoutConditions(s.Conditions, corev1.PersistentVolumeClaimControllerResizeError)
	s.Conditions = withCondition(s.Conditions, corev1.PersistentVolumeClaimResizing, "", now)
	return s
}

// expansionFailedStatus returns the status of a claim whose expansion failed, temporarily or as infeasible.
func expansionFailedStatus(
	before corev1.PersistentVolumeClaimStatus,
	cause error,
	infeasible bool,
	now time.Time,
) corev1.PersistentVolumeClaimStatus {
	s := *before.DeepCopy()
	if infeasible {
		setAllocated(&s, s.AllocatedResources[corev1.ResourceStorage],
			corev1.PersistentVolumeClaimControllerResizeInfeasible)
	}
	s.Conditions = withCondition(s.Conditions, corev1.PersistentVolumeClaimControllerResizeError,
		fmt.Sprintf("failed to expand pvc with %v", cause), now)
	return s
}

// expandedStatus returns the status of a claim whose volume has been expanded.
func expandedStatus(before corev1.PersistentVolumeClaimStatus,
	size resource.Quantity) corev1.PersistentVolumeClaimStatus {
	s := *before.DeepCopy()
	s.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	delete(s.AllocatedResourceStatuses, corev1.ResourceStorage)
	s.Conditions = withoutConditions(s.Conditions, corev1.PersistentVolumeClaimResizing,
		corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimControllerResizeError,
		corev1.PersistentVolumeClaimNodeResizeError)
	return s
}

func setAllocated(s *corev1.PersistentVolumeClaimStatus, size resource.Quantity, state corev1.ClaimResourceStatus) {
	if s.AllocatedResources == nil {
		s.AllocatedResources = corev1.ResourceList{}
	}
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	s.AllocatedResources[corev1.ResourceStorage], s.AllocatedResourceStatuses[corev1.ResourceStorage] = size, state
}

// withCondition returns conditions in which the condition kind is true with a message. A condition that is already true
// retains its transition time.
func withCondition(
	conditions []corev1.PersistentVolumeClaimCondition,
	kind corev1.PersistentVolumeClaimConditionType,
	message string,
	now time.Time,
) []corev1.PersistentVolumeClaimCondition {
	for i := range conditions {
		if conditions[i].Type == kind && conditions[i].Status == corev1.ConditionTrue {
			conditions[i].Message = message
			return conditions
		}
	}
	return append(withoutConditions(conditions, kind), corev1.PersistentVolumeClaimCondition{
		Type: kind, Status: corev1.ConditionTrue, Message: message, LastTransitionTime: metav1.NewTime(now)})
}

// withoutConditions returns the conditions that are not of the given kinds.
func withoutConditions(
	conditions []corev1.PersistentVolumeClaimCondition,
	kinds ...corev1.PersistentVolumeClaimConditionType,
) (kept []corev1.PersistentVolumeClaimCondition) {
	for _, c := range conditions {
		isGone := false
		for _, k := range kinds {
			isGone = isGone || c.Type == k
		}
		if !isGone {
			kept = append(kept, c)
		}
	}
	return kept
}

// writeStatus writes a claim's status if it differs, and returns the claim. It returns nil if the claim is gone.
func (p *controller) writeStatus(
	ctx context.Context,
	claim *corev1.PersistentVolumeClaim,
	s corev1.PersistentVolumeClaimStatus,
) (*corev1.PersistentVolumeClaim, error) {
	if apiequality.Semantic.DeepEqual(s, claim.Status) {
		return claim, nil
	}
	updated := claim.DeepCopy()
	updated.Status = s
	written, err := p.Client.CoreV1().
		PersistentVolumeClaims(claim.Namespace).
		UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("write the status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return written, nil
}
