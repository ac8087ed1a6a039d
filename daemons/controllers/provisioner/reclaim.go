package provisioner

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/directory"
)

// Action is what has to be done with a volume of this provisioner.
type Action string

// Actions for a volume.
const (
	ActionNone   Action = ""       // it is in use, or has to be retained
	ActionRemove Action = "remove" // remove its directory, then the object
	// ActionReleaseOnly removes only the finalizer: the object is being deleted, and its policy retains the data
	ActionReleaseOnly Action = "let go"
)

// DecideVolume returns the action for a volume. Before anything is removed, isUnclaimed checks the claim that the
// volume names.
func DecideVolume(v *corev1.PersistentVolume) Action {
	if !directory.IsProvisioned(v) {
		return ActionNone
	}
	held := slices.Contains(v.Finalizers, directory.Finalizer)
	going := v.DeletionTimestamp != nil
	free := v.Spec.ClaimRef == nil && v.Status.Phase == corev1.VolumeAvailable
	given := v.Spec.ClaimRef != nil &&
		(v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed)
	switch {
	case going && !held:
		return ActionNone
	case v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		if going && (free || given) {
			return ActionReleaseOnly
		}
	case given, going && free:
		return ActionRemove
	}
	return ActionNone
}

// isUnclaimed reports whether no claim uses a volume: the claim that it names is gone (nil), is another claim of that
// name, or has another volume.
func isUnclaimed(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	switch {
	case ref == nil:
		return true
	case ref.UID == "":
		return false // reserved for any claim with that name
	case claim == nil || claim.UID != ref.UID:
		return true
	}
	return claim.Spec.VolumeName != "" && claim.Spec.VolumeName != v.Name
}
