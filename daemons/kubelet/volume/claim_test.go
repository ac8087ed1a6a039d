package volume

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A volume is mounted only for the pod to which it belongs, whatever its name is.
// Proves S30.
//
//style:long a table of claims and volumes, with the refusal of each
func TestAVolumeBelongsToItsClaim(t *testing.T) {
	named := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "p-v"}}
	own := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	yes, block, now := true, corev1.PersistentVolumeBlock, metav1.Now()
	ownedBy := func(uid, kind string, controller *bool) func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
		return func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: kind, Name: "p", UID: "u", Controller: controller},
			}
			if uid != "" {
				c.OwnerReferences[0].UID = "other"
			}
		}
	}
	type change = func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)
	for name, c := range map[string]struct {
		source corev1.VolumeSource
		change change
		want   string // part of the error; empty if it is mounted
	}{
		"a claim that both agree on": {named, nil, ""},
		"the pod's own":              {own, ownedBy("", "Pod", &yes), ""},
		"nobody's, of the name":      {own, nil, "PVC d/p-v was not created for pod d/p (pod is not owner)"},
		"a former pod's of the name": {own, ownedBy("other", "Pod", &yes), "pod is not owner"},
		"owned, not controlled":      {own, ownedBy("", "Pod", nil), "pod is not owner"},
		"a claim that is not bound": {named, func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Status.Phase = corev1.ClaimPending
		}, "PVC is not bound"},
		"a claim that lost its volume": {named,
			func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.Status.Phase = corev1.ClaimLost },
			"PVC is not bound"},
		"a claim that goes": {named,
			func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.DeletionTimestamp = &now },
			"PVC is being deleted"},
		"a volume that says nothing": {named,
			func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil },
			"nil pv.Spec.ClaimRef"},
		"a volume of a former claim": {named,
			func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "old" },
			"ClaimRef.UID old does not point to claim.UID c"},
		"a volume that is only reserved": {named,
			func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" },
			"does not point to claim.UID c"},
		"a volume of another namespace": {named,
			func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace = "e" },
			"does not point to claim"},
		"a volume of another name": {named,
			func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "q" },
			"does not point to claim"},
		"a volume that is there no more": {named,
			func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.Spec.VolumeName = "gone" },
			"failed to fetch PV gone"},
		"a block device": {named,
			func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.VolumeMode = &block },
			"volumeMode Block"},
		"the pod's own, bound to another's": {own, func(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			ownedBy("", "Pod", &yes)(c, v)
			v.Spec.ClaimRef.UID = "x"
		}, "ClaimRef.UID x"},
	} {
		m, s := manager(t)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p-v", UID: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeName: "pv",
			}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()},
			},
			ClaimRef: &corev1.ObjectReference{
				Kind:      "PersistentVolumeClaim",
				Namespace: "d",
				Name:      "p-v",
				UID:       "c",
			}}}
		if c.change != nil {
			c.change(claim, pv)
		}
		s.claims = map[string]*corev1.PersistentVolumeClaim{"d/p-v": claim}
		s.volumes = map[string]*corev1.PersistentVolume{"pv": pv}
		p := newPod(c.source)
		_, err := m.Setup(context.Background(), p)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := os.Lstat(filepath.Join(m.PodDir("u"), "volumes", "kubernetes.io~local-volume",
			"v")); (err == nil) != (c.want == "") {
			t.Errorf("%s: the place of its mount: %v", name, err)
		}
	}
}
