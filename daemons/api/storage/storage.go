// Package storage defines the annotations of persistent volumes and claims, and how their classes are read.
package storage

import corev1 "k8s.io/api/core/v1"

// Annotations of claims and volumes.
const (
	AnnBindCompleted          = "pv.kubernetes.io/bind-completed"
	AnnBoundByController      = "pv.kubernetes.io/bound-by-controller"
	AnnDynamicallyProvisioned = "pv.kubernetes.io/provisioned-by"
	AnnSelectedNode           = "volume.kubernetes.io/selected-node"
	AnnStorageProvisioner     = "volume.kubernetes.io/storage-provisioner"
	AnnBetaStorageProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
)

// GetPersistentVolumeClaimClass returns the name of the class that a claim requests, or "".
func GetPersistentVolumeClaimClass(claim *corev1.PersistentVolumeClaim) string {
	if class, found := claim.Annotations[corev1.BetaStorageClassAnnotation]; found {
		return class
	}
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// GetPersistentVolumeClass returns the name of a volume's class, or "".
func GetPersistentVolumeClass(volume *corev1.PersistentVolume) string {
	if class, found := volume.Annotations[corev1.BetaStorageClassAnnotation]; found {
		return class
	}
	return volume.Spec.StorageClassName
}
