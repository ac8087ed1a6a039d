package binder

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/api/storage"
)

// findMatch returns the volume that a claim without a volume gets, or nil. A volume that is reserved for the claim
// comes first, then one with the fewest access modes, then the smallest. A claim that waits for its first consumer gets
// only a volume that is reserved for it, because the scheduler selects its volume.
func findMatch(
	claim *corev1.PersistentVolumeClaim,
	volumes []*corev1.PersistentVolume,
	waits bool,
) *corev1.PersistentVolume {
	selector := labels.Everything()
	if claim.Spec.Selector != nil {
		s, err := metav1.LabelSelectorAsSelector(claim.Spec.Selector)
		if err != nil {
			return nil // impossible: the API server has validated it
		}
		selector = s
	}
	var best *corev1.PersistentVolume
	for _, v := range volumes {
		if v.DeletionTimestamp != nil || v.Spec.ClaimRef != nil && !refersTo(v, claim) {
			continue
		}
		if exceedsCapacity(claim, v) || hasOtherMode(claim, v) ||
			attributesClass(claim.Spec.VolumeAttributesClassName) != attributesClass(
				v.Spec.VolumeAttributesClassName) ||
			!hasAccessModes(v, claim) {
			continue
		}
		reserved := refersTo(v, claim)
		if !reserved &&
			(waits || v.Status.Phase != corev1.VolumeAvailable || !selector.Matches(labels.Set(v.Labels)) ||
				storage.GetPersistentVolumeClass(v) != storage.GetPersistentVolumeClaimClass(claim)) {
			continue
		}
		if best == nil || isPreferred(v, best, claim) {
			best = v
		}
	}
	return best
}

// isPreferred reports whether a is preferred to b. Both fit the claim.
func isPreferred(a, b *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	if x, y := refersTo(a, claim), refersTo(b, claim); x != y {
		return x
	}
	if x, y := len(a.Spec.AccessModes), len(b.Spec.AccessModes); x != y {
		return x < y
	}
	if c := a.Spec.Capacity.Storage().Cmp(*b.Spec.Capacity.Storage()); c != 0 {
		return c < 0
	}
	return strings.Compare(a.Name, b.Name) < 0
}

// mismatchReason returns why a claim cannot have the volume that it names, or "" if it can.
func mismatchReason(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) string {
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Sprintf("the volume is marked for deletion %q", v.Name)
	case exceedsCapacity(claim, v):
		return "requested PV is too small"
	case storage.GetPersistentVolumeClass(v) != storage.GetPersistentVolumeClaimClass(claim):
		return "storageClassName does not match"
	case attributesClass(claim.Spec.VolumeAttributesClassName) != attributesClass(v.Spec.VolumeAttributesClassName):
		return "volumeAttributesClassName does not match"
	case hasOtherMode(claim, v):
		return "incompatible volumeMode"
	case !hasAccessModes(v, claim):
		return "incompatible accessMode"
	}
	return ""
}

// refersTo reports whether a volume is reserved for or bound to a claim. A reference without a UID means any claim of
// that name.
func refersTo(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name &&
		(ref.UID == "" || ref.UID == claim.UID)
}

// exceedsCapacity reports whether a claim requests more than a volume's capacity.
func exceedsCapacity(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	return v.Spec.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) < 0
}

func hasOtherMode(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	mode := func(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
		if m == nil {
			return corev1.PersistentVolumeFilesystem
		}
		return *m
	}
	return mode(claim.Spec.VolumeMode) != mode(v.Spec.VolumeMode)
}

func hasAccessModes(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(claim.Spec.AccessModes,
		func(m corev1.PersistentVolumeAccessMode) bool { return !slices.Contains(v.Spec.AccessModes, m) })
}

func attributesClass(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}
