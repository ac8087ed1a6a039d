package authz

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func persistentVolumeOf(obj runtime.Object) *corev1.PersistentVolume {
	volume, _ := obj.(*corev1.PersistentVolume)
	return volume
}

// needsMountSecret reports whether a kubelet needs the Secret to mount the volume. Secrets with which controllers
// attach or expand the volume do not count.
func needsMountSecret(v *corev1.PersistentVolume, namespace, name string) bool {
	claimed := ""
	if c := v.Spec.ClaimRef; c != nil {
		claimed = c.Namespace
	}
	// A reference without a namespace refers to the claim's namespace.
	matches := func(ref *corev1.SecretReference) bool {
		if ref == nil || ref.Name != name {
			return false
		}
		return ref.Namespace == namespace || ref.Namespace == "" && claimed == namespace
	}
	switch s := &v.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return matches(s.CSI.NodePublishSecretRef) || matches(s.CSI.NodeStageSecretRef) ||
			matches(s.CSI.NodeExpandSecretRef)
	case s.AzureFile != nil:
		in := ""
		if s.AzureFile.SecretNamespace != nil {
			in = *s.AzureFile.SecretNamespace
		}
		return matches(&corev1.SecretReference{Name: s.AzureFile.SecretName, Namespace: in})
	case s.CephFS != nil:
		return matches(s.CephFS.SecretRef)
	case s.Cinder != nil:
		return matches(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		return matches(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		return matches(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		return matches(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		return matches(s.ISCSI.SecretRef)
	case s.StorageOS != nil && s.StorageOS.SecretRef != nil:
		return matches(&corev1.SecretReference{Name: s.StorageOS.SecretRef.Name,
			Namespace: s.StorageOS.SecretRef.Namespace})
	}
	return false
}

// mountSecret returns the Secret of the pod's namespace with which one of its volumes is mounted; empty if there is
// none.
func mountSecret(v *corev1.Volume) string {
	local := func(ref *corev1.LocalObjectReference) string {
		if ref == nil {
			return ""
		}
		return ref.Name
	}
	switch {
	case v.Secret != nil:
		return v.Secret.SecretName
	case v.CSI != nil:
		return local(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		return v.AzureFile.SecretName
	case v.CephFS != nil:
		return local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		return local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		return local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		return local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		return local(v.StorageOS.SecretRef)
	}
	return ""
}
