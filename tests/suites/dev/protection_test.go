package dev

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proves S12.
func TestClaimsInUseStayUntilTheirPodIsGone(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	claim := must[*corev1.PersistentVolumeClaim](t)(
		sharedClient.CoreV1().
			PersistentVolumeClaims(ns).
			Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
					Resources:   corev1.VolumeResourceRequirements{Requests: resourceList("storage", "1Gi")},
				}}, metav1.CreateOptions{}),
	)
	if !slices.Contains(claim.Finalizers, "kubernetes.io/pvc-protection") {
		t.Errorf("a new claim has the finalizers %q", claim.Finalizers)
	}
	spec := podSpec()
	spec.NodeName = "node-1" // the pod waits there for its claim, which stays unbound
	spec.Volumes = []corev1.Volume{
		{
			Name: "v",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
			},
		},
	}
	must[*corev1.Pod](t)(
		sharedClient.CoreV1().
			Pods(ns).
			Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Spec: spec},
				metav1.CreateOptions{}),
	)
	if err := sharedClient.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), "disk",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	holdFor(t, "the claim stays", func(ctx context.Context) (bool, any) {
		c, err := sharedClient.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "disk", metav1.GetOptions{})
		return err == nil && c.DeletionTimestamp != nil, err
	})
	now := int64(0)
	if err := sharedClient.CoreV1().Pods(ns).Delete(t.Context(), "user",
		metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the claim to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "disk", metav1.GetOptions{}))
	})
}

// Proves S12.
func TestBoundVolumesStay(t *testing.T) {
	t.Parallel()
	name := createNamespace(t) // the namespace's name is also a unique name for the class
	createVolume(t, name, name, "1Gi", nil)
	createClaim(t, name, "disk", name, nil)
	awaitClaim(t, name, "disk", "the claim to be bound", hasPhase(corev1.ClaimBound))
	if err := sharedClient.CoreV1().PersistentVolumes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	holdFor(t, "the volume stays", func(ctx context.Context) (bool, any) {
		v, err := sharedClient.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && v.DeletionTimestamp != nil && v.Status.Phase == corev1.VolumeBound, err
	})
	deleteClaim(t, name, "disk")
	waitFor(t, "the volume to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}))
	})
}
