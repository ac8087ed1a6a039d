// Package binder binds claims to volumes and manages the phases of both. It decides which volume a claim gets and what
// happens to a volume whose claim is gone. Provisioners create and remove volumes. The binder marks the claims and
// volumes for them.
package binder

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"clusterctl/daemons/api/storage"
)

// ClaimInput is everything that DecideClaim reads besides the claim.
type ClaimInput struct {
	Volumes []*corev1.PersistentVolume // all volumes; if the claim names one, that volume is sufficient
	Class   *storagev1.StorageClass    // the claim's class; nil if it does not exist
	Default *storagev1.StorageClass    // the default class for claims without a class, or nil
	Waiting []string                   // pods that use the claim and have no node
}

// Event is an event to record for an object.
type Event struct{ Type, Reason, Message string }

// ClaimDecision holds the actions for a claim.
type ClaimDecision struct {
	Phase       corev1.PersistentVolumeClaimPhase
	Bind        *corev1.PersistentVolume // the volume to bind, with phase Bound
	Class       string                   // the class to set on a claim that has none
	Provisioner string                   // the provisioner that should create a volume
	Event       *Event
}

// DecideClaim returns the actions for a claim.
func DecideClaim(claim *corev1.PersistentVolumeClaim, s ClaimInput) ClaimDecision {
	if _, completed := claim.Annotations[storage.AnnBindCompleted]; completed {
		return decideBound(claim, s)
	}
	if claim.DeletionTimestamp != nil {
		return ClaimDecision{Phase: corev1.ClaimPending} // it is only retained while it is in use, and needs no volume
	}
	if claim.Spec.VolumeName != "" {
		return decideRequested(claim, s)
	}
	waits := waitsForConsumer(s.Class)
	if v := findMatch(claim, s.Volumes, waits); v != nil {
		return ClaimDecision{Phase: corev1.ClaimBound, Bind: v}
	}
	pending := ClaimDecision{Phase: corev1.ClaimPending}
	_, placed := claim.Annotations[storage.AnnSelectedNode]
	switch {
	case !hasClass(claim) && s.Default != nil:
		pending.Class = s.Default.Name
	case waits && !placed:
		pending.Event = waitingEvent(s.Waiting)
	case storage.GetPersistentVolumeClaimClass(claim) == "":
		pending.Event = &Event{
			corev1.EventTypeNormal,
			"FailedBinding",
			"no persistent volumes available for this claim and no storage class is set",
		}
	case s.Class == nil:
		pending.Event = failedEvent(fmt.Sprintf("storageclass.storage.k8s.io %q not found",
			storage.GetPersistentVolumeClaimClass(claim)))
	case strings.HasPrefix(s.Class.Provisioner, "kubernetes.io/"):
		pending.Event = failedEvent("no volume plugin matched name: " + s.Class.Provisioner)
	default:
		pending.Provisioner = s.Class.Provisioner
		pending.Event = &Event{
			corev1.EventTypeNormal,
			"ExternalProvisioning",
			fmt.Sprintf("Waiting for a volume to be created either by the external provisioner '%s' or "+
				"manually by the system administrator. If volume creation is delayed, please verify that the "+
				"provisioner is running and correctly registered.", s.Class.Provisioner),
		}
	}
	return pending
}

func failedEvent(message string) *Event {
	return &Event{corev1.EventTypeWarning, "ProvisioningFailed", message}
}

func waitingEvent(pods []string) *Event {
	switch len(pods) {
	case 0:
		return &Event{
			corev1.EventTypeNormal,
			"WaitForFirstConsumer",
			"waiting for first consumer to be created before binding",
		}
	case 1:
		return &Event{
			corev1.EventTypeNormal,
			"WaitForPodScheduled",
			fmt.Sprintf("waiting for pod %s to be scheduled", pods[0]),
		}
	}
	return &Event{
		corev1.EventTypeNormal,
		"WaitForPodScheduled",
		fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(pods, ",")),
	}
}

// decideRequested handles a claim that asks for a certain volume. That volume need not exist yet.
func decideRequested(claim *corev1.PersistentVolumeClaim, s ClaimInput) ClaimDecision {
	v := findVolume(s.Volumes, claim.Spec.VolumeName)
	pending := ClaimDecision{Phase: corev1.ClaimPending}
	switch {
	case v == nil:
		return pending
	case v.Spec.ClaimRef == nil:
		if reason := mismatchReason(claim, v); reason != "" {
			pending.Event = &Event{
				corev1.EventTypeWarning,
				"VolumeMismatch",
				fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, reason),
			}
			return pending
		}
		return ClaimDecision{Phase: corev1.ClaimBound, Bind: v}
	case refersTo(v, claim):
		return ClaimDecision{Phase: corev1.ClaimBound, Bind: v}
	}
	pending.Event = &Event{
		corev1.EventTypeWarning,
		"FailedBinding",
		fmt.Sprintf("volume %q already bound to a different claim.", v.Name),
	}
	return pending
}

// decideBound handles a claim that was bound before. Its volume is never replaced by another, since the data is on that
// volume.
func decideBound(claim *corev1.PersistentVolumeClaim, s ClaimInput) ClaimDecision {
	lost := func(reason, message string) ClaimDecision {
		d := ClaimDecision{Phase: corev1.ClaimLost}
		if claim.Status.Phase != corev1.ClaimLost {
			d.Event = &Event{corev1.EventTypeWarning, reason, message}
		}
		return d
	}
	v := findVolume(s.Volumes, claim.Spec.VolumeName)
	switch {
	case claim.Spec.VolumeName == "":
		return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case v == nil:
		return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == claim.UID || v.Spec.ClaimRef.UID == "" && refersTo(v, claim):
		return ClaimDecision{Phase: corev1.ClaimBound, Bind: v}
	}
	return lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

func findVolume(volumes []*corev1.PersistentVolume, name string) *corev1.PersistentVolume {
	for _, v := range volumes {
		if v.Name == name {
			return v
		}
	}
	return nil
}
