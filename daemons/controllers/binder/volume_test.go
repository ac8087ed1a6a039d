package binder

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestVolumeDecisions(t *testing.T) {
	type pv = corev1.PersistentVolume
	setPhase := func(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy,
		by string) func(*pv) {
		return func(v *pv) {
			v.Status.Phase, v.Spec.PersistentVolumeReclaimPolicy = phase, policy
			if by != "" {
				v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": by}
			}
		}
	}
	bound := reservedFor("c", "u")
	elsewhere := func(name string) *corev1.PersistentVolumeClaim {
		return newClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = name })
	}
	another := newClaim(func(c *corev1.PersistentVolumeClaim) { c.UID = "new" })
	for name, c := range map[string]struct {
		volume *pv
		claim  *corev1.PersistentVolumeClaim
		want   VolumeDecision
		reason string
	}{
		"new": {newVolume("a", "1Gi", setPhase("Pending", "Retain", "")), nil,
			VolumeDecision{Phase: "Available"}, ""},
		"an admin took it back": {newVolume("a", "1Gi", setPhase("Released", "Retain", "")), nil,
			VolumeDecision{Phase: "Available"}, ""},
		"reserved, no claim yet": {newVolume("a", "1Gi", setPhase("Pending", "Retain", ""), reservedFor("c", "")), nil,
			VolumeDecision{Phase: "Available"}, ""},
		"reserved, and its claim": {newVolume("a", "1Gi", setPhase("Available", "Retain", ""), reservedFor("c", "")),
			newClaim(), VolumeDecision{Phase: "Available", EnqueueClaim: true}, ""},
		"half bound": {newVolume("a", "1Gi", setPhase("Available", "Retain", ""), bound), newClaim(),
			VolumeDecision{Phase: "Available", EnqueueClaim: true}, ""},
		"bound": {newVolume("a", "1Gi", setPhase("Available", "Retain", ""), bound), elsewhere("a"),
			VolumeDecision{Phase: "Bound"}, ""},
		"its claim is gone": {newVolume("a", "1Gi", setPhase("Bound", "Retain", ""), bound), nil,
			VolumeDecision{Phase: "Released"}, ""},
		"another claim has the name": {newVolume("a", "1Gi", setPhase("Bound", "Retain", ""), bound), another,
			VolumeDecision{Phase: "Released"}, ""},
		"released stays so": {newVolume("a", "1Gi", setPhase("Released", "Retain", ""), bound), another,
			VolumeDecision{Phase: "Released"}, ""},
		"its provisioner removes it": {newVolume("a", "1Gi", setPhase("Bound", "Delete", "p.io/x"), bound), nil,
			VolumeDecision{Phase: "Released"}, ""},
		"nobody would remove it": {newVolume("a", "1Gi", setPhase("Bound", "Delete", ""), bound), nil, VolumeDecision{Phase: "Failed", Message: `error getting deleter volume plugin for volume "a": no deletable volume plugin matched`}, "VolumeFailedDelete"},
		"by a plugin of the past": {newVolume("a", "1Gi", setPhase("Bound", "Delete", "kubernetes.io/host-path"),
			bound),
			nil, VolumeDecision{Phase: "Failed", Message: "no volume plugin matched name: " +
				"kubernetes.io/host-path"}, "VolumeFailedDelete"},
		"recycling": {newVolume("a", "1Gi", setPhase("Bound", "Recycle", ""), bound), nil,
			VolumeDecision{Phase: "Failed", Message: "No recycler plugin found for the " +
				"volume!"}, "VolumeFailedRecycle"},
		"failed, which was said": {newVolume("a", "1Gi", setPhase("Failed", "Recycle", ""), bound), nil,
			VolumeDecision{Phase: "Failed"}, ""},
		"its claim has another": {newVolume("a", "1Gi", setPhase("Bound", "Delete", ""), bound), elsewhere("b"),
			VolumeDecision{Phase: "Available", Unbind: true}, ""},
		"made for one that has another": {newVolume("a", "1Gi", setPhase("Bound", "Delete", "p.io/x"), bound),
			elsewhere("b"),
			VolumeDecision{Phase: "Released"}, ""},
		"kept for one that has another": {newVolume("a", "1Gi", setPhase("Bound", "Retain", "p.io/x"), bound),
			elsewhere("b"),
			VolumeDecision{Phase: "Available", Unbind: true}, ""},
		"a device for who wanted a file": {newVolume("a", "1Gi", setPhase("Available", "Retain", ""), bound,
			func(v *pv) { v.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) }), newClaim(),
			VolumeDecision{Phase: "Available"}, "VolumeMismatch"},
	} {
		got := DecideVolume(c.volume, c.claim)
		reason := ""
		if got.Event != nil {
			reason = got.Event.Reason
		}
		got.Event, got.ClaimEvent = nil, nil
		if got != c.want || reason != c.reason {
			t.Errorf("%s: %+v %s", name, got, reason)
		}
	}
}
