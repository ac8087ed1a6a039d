package protection

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reportsUse reports whether a claim's status should report its use: it is bound and not being deleted.
func reportsUse(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase == corev1.ClaimBound && claim.DeletionTimestamp == nil
}

// countsAsUser reports whether a pod counts as a user of a claim. A pod that waits for a node counts. A pod that has
// ended does not.
func countsAsUser(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return !hasEnded(pod) && isNamed(pod, claim, true)
}

// reportUse writes to a claim's status whether a pod uses it, and since when.
func (p *claims) reportUse(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if !reportsUse(claim) {
		return nil
	}
	used, err := p.isUsedInCache(claim, countsAsUser)
	if err != nil {
		return err
	}
	updated := claim.DeepCopy()
	if !setUnused(&updated.Status, !used, p.Now()) {
		return nil
	}
	if _, err := p.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("say whether claim %s/%s is used: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// setUnused sets the condition Unused and reports whether that changed anything. The transition time is that of the
// last change between used and unused.
func setUnused(s *corev1.PersistentVolumeClaimStatus, unused bool, now time.Time) bool {
	c := corev1.PersistentVolumeClaimCondition{
		Type:               corev1.PersistentVolumeClaimUnused,
		Status:             corev1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(now),
		Reason:             "PodUsingPVC",
		Message:            "A pod is currently referencing this PVC",
	}
	if unused {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "NoPodsUsingPVC", "No pods are currently referencing "+
			"this PVC"
	}
	for i := range s.Conditions {
		condition := &s.Conditions[i]
		switch {
		case condition.Type != c.Type:
		case condition.Status == c.Status:
			return false
		default:
			*condition = c
			return true
		}
	}
	s.Conditions = append(s.Conditions, c)
	return true
}
