package storage

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/volume"
	"clusterctl/daemons/kinds/warn"
)

func claimWarnings(c, _ *corev1.PersistentVolumeClaim) []string {
	var d warn.List
	volume.ClassWarnings(&d, c.Annotations)
	volume.ClaimWarnings(&d, &c.Spec, field.NewPath("spec"))
	return d
}

func persistentVolumeWarnings(v, _ *corev1.PersistentVolume) []string {
	var d warn.List
	path := field.NewPath("spec")
	volume.ClassWarnings(&d, v.Annotations)
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		d.Addf(path.Child("persistentVolumeReclaimPolicy"), "The Recycle reclaim policy is deprecated. Instead, the "+
			"recommended approach is to use dynamic provisioning.")
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i, t := range a.Required.NodeSelectorTerms {
			warn.NodeTerm(&d, t, true, path.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))
		}
	}
	for _, old := range []struct {
		set        bool
		name, text string
	}{
		{v.Spec.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
		{v.Spec.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
		{v.Spec.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
		{v.Spec.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
		{v.Spec.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
		{v.Spec.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
	} {
		if old.set {
			d.Addf(path.Child(old.name), "%s", old.text)
		}
	}
	return d
}

func storageClassWarnings(c, _ *storagev1.StorageClass) []string {
	var d warn.List
	for i, t := range c.AllowedTopologies {
		for j, e := range t.MatchLabelExpressions {
			if text := warn.RenamedLabels[e.Key]; text != "" {
				d.Addf(field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"),
					"%s", text)
			}
		}
	}
	return d
}

func capacityWarnings(c, _ *storagev1.CSIStorageCapacity) []string {
	var d warn.List
	warn.Topology(&d, c.NodeTopology, field.NewPath("nodeTopology"))
	return d
}
