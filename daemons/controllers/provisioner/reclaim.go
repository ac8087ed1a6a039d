package provisioner

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/directory"
)

// An Action is what is to be done about a volume of ours.
type Action string

// The actions.
const (
	Leave  Action = ""       // it is somebody's, or is to be kept
	Remove Action = "remove" // its directory first, then the object
	LetGo  Action = "let go" // the object alone: it is deleted, and its policy keeps the data
)

// DecideVolume decides about a volume. What the claim that it names says is looked at before anything is removed, see
// unclaimed.
func DecideVolume(v *corev1.PersistentVolume) Action {
	if !directory.Provisioned(v) {
		return Leave
	}
	held := slices.Contains(v.Finalizers, directory.Finalizer)
	going := v.DeletionTimestamp != nil
	free := v.Spec.ClaimRef == nil && v.Status.Phase == corev1.VolumeAvailable
	given := v.Spec.ClaimRef != nil &&
		(v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed)
	switch {
	case going && !held:
		return Leave
	case v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		if going && (free || given) {
			return LetGo
		}
	case given, going && free:
		return Remove
	}
	return Leave
}

// unclaimed reports whether a volume is nobody's: the claim that it names is gone (nil), is another of that name, or has
// another volume.
func unclaimed(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	switch {
	case ref == nil:
		return true
	case ref.UID == "":
		return false // reserved for whoever has the name
	case claim == nil || claim.UID != ref.UID:
		return true
	}
	return claim.Spec.VolumeName != "" && claim.Spec.VolumeName != v.Name
}
