package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// hasOtherOwners reports whether files of a volume should belong to a user other than root. This kubelet does not
// support that.
func hasOtherOwners(v *corev1.Volume) bool {
	keys := func(items []corev1.KeyToPath) bool {
		return slices.ContainsFunc(items, func(i corev1.KeyToPath) bool { return i.User != nil })
	}
	fields := func(items []corev1.DownwardAPIVolumeFile) bool {
		return slices.ContainsFunc(items, func(i corev1.DownwardAPIVolumeFile) bool { return i.User != nil })
	}
	switch {
	case v.Secret != nil:
		return v.Secret.DefaultUser != nil || keys(v.Secret.Items)
	case v.ConfigMap != nil:
		return v.ConfigMap.DefaultUser != nil || keys(v.ConfigMap.Items)
	case v.DownwardAPI != nil:
		return v.DownwardAPI.DefaultUser != nil || fields(v.DownwardAPI.Items)
	case v.Projected != nil:
		return v.Projected.DefaultUser != nil ||
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
				return s.Secret != nil && keys(s.Secret.Items) || s.ConfigMap != nil && keys(s.ConfigMap.Items) ||
					s.DownwardAPI != nil && fields(s.DownwardAPI.Items) || s.ServiceAccountToken != nil &&
					s.ServiceAccountToken.User != nil ||
					s.ClusterTrustBundle != nil && s.ClusterTrustBundle.User != nil
			})
	}
	return false
}
