package binder

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"clusterctl/daemons/kinds/storage"
)

// hasClass reports whether a claim specifies a class. The empty class counts as specified.
func hasClass(claim *corev1.PersistentVolumeClaim) bool {
	_, beta := claim.Annotations[corev1.BetaStorageClassAnnotation]
	return beta || claim.Spec.StorageClassName != nil
}

// waitsForConsumer reports whether claims of a class are bound only after a pod that uses them has a node.
func waitsForConsumer(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// defaultClass returns the class of claims that specify none. Of several default classes it returns the newest, as the
// API server does for new claims.
func defaultClass(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	var best *storagev1.StorageClass
	for _, c := range classes {
		if !isDefault(c) {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&c.CreationTimestamp) ||
			best.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < best.Name {
			best = c
		}
	}
	return best
}

func isDefault(c *storagev1.StorageClass) bool {
	return c.Annotations[storage.DefaultClassAnnotation] == "true" ||
		c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}
