package binder

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/storage"
)

// VolumeDecision holds the actions for a volume.
type VolumeDecision struct {
	Phase   corev1.PersistentVolumePhase
	Message string // the status message for the phase
	// the claim has another volume: remove the reference, or only its UID if a user reserved the volume for the claim's
	// name
	Unbind       bool
	Event        *Event
	ClaimEvent   *Event // an event to record for the claim
	EnqueueClaim bool   // queue the claim
}

// DecideVolume returns the actions for a volume. claim is the claim that claimRef names, or nil if it does not exist.
func DecideVolume(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) VolumeDecision {
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "" {
		return VolumeDecision{Phase: corev1.VolumeAvailable, EnqueueClaim: claim != nil}
	}
	_, provisioned := v.Annotations[storage.AnnDynamicallyProvisioned]
	switch {
	case isOrphaned(v, claim):
		return decideReleased(v)
	case claim.Spec.VolumeName == "" && hasOtherMode(claim, v):
		return VolumeDecision{Phase: v.Status.Phase, Message: v.Status.Message,
			Event: &Event{corev1.EventTypeWarning, "VolumeMismatch",
				fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible "+
					"volumeMode.", claim.Name)},
			ClaimEvent: &Event{corev1.EventTypeWarning, "VolumeMismatch",
				fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible "+
					"volumeMode.", v.Name)}}
	case claim.Spec.VolumeName == "":
		return VolumeDecision{Phase: v.Status.Phase, Message: v.Status.Message, EnqueueClaim: true}
	case claim.Spec.VolumeName == v.Name:
		return VolumeDecision{Phase: corev1.VolumeBound}
	case provisioned && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return decideReleased(v) // it was created for this claim, which has another volume now
	}
	return VolumeDecision{Phase: corev1.VolumeAvailable, Unbind: true}
}

// isOrphaned reports whether the claim that a volume is bound to is gone. Another claim of the same name does not
// count.
func isOrphaned(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != "" && (claim == nil || claim.UID != v.Spec.ClaimRef.UID)
}

// decideReleased handles a volume whose claim is gone. Its provisioner removes the volume if the reclaim policy says
// so. A volume in phase Failed stays Failed until that succeeds.
func decideReleased(v *corev1.PersistentVolume) VolumeDecision {
	d := VolumeDecision{Phase: corev1.VolumeReleased}
	if v.Status.Phase == corev1.VolumeFailed {
		d.Phase, d.Message = v.Status.Phase, v.Status.Message
		return d
	}
	fails := func(reason, message string) VolumeDecision {
		return VolumeDecision{
			Phase:   corev1.VolumeFailed,
			Message: message,
			Event:   &Event{corev1.EventTypeWarning, reason, message},
		}
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRecycle:
		return fails("VolumeFailedRecycle", "No recycler plugin found for the volume!")
	case corev1.PersistentVolumeReclaimDelete:
		by := v.Annotations[storage.AnnDynamicallyProvisioned]
		switch {
		case strings.HasPrefix(by, "kubernetes.io/"):
			return fails("VolumeFailedDelete", "no volume plugin matched name: "+by)
		case by == "":
			return fails("VolumeFailedDelete", fmt.Sprintf(
				"error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name))
		}
	}
	return d
}
