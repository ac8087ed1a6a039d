package binder

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api/storage"
)

// index finds the claims and volumes that a change affects without scanning all of them.
type index struct{ claims, volumes cache.Indexer }

const (
	byClaim  = "volumes by claim"
	byVolume = "claims by volume"
	byClass  = "claims without volume by class"
)

// newIndex adds the indexes to informers that are not started yet.
func newIndex(claims, volumes cache.SharedIndexInformer) index {
	_ = claims.AddIndexers(cache.Indexers{
		byVolume: func(obj any) ([]string, error) {
			if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Spec.VolumeName != "" {
				return []string{claim.Spec.VolumeName}, nil
			}
			return nil, nil
		},
		byClass: func(obj any) ([]string, error) {
			if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Spec.VolumeName == "" {
				return []string{storage.GetPersistentVolumeClaimClass(claim)}, nil
			}
			return nil, nil
		},
	})
	_ = volumes.AddIndexers(cache.Indexers{byClaim: func(obj any) ([]string, error) {
		if v, ok := obj.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef != nil {
			return []string{v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name}, nil
		}
		return nil, nil
	}})
	return index{claims.GetIndexer(), volumes.GetIndexer()}
}

func (x index) volumesOf(claim string) []string { return keys(x.volumes, byClaim, claim) }
func (x index) claimsOf(volume string) []string { return keys(x.claims, byVolume, volume) }
func (x index) unbound(class string) []string   { return keys(x.claims, byClass, class) }

func keys(from cache.Indexer, index, value string) []string {
	found, err := from.IndexKeys(index, value)
	if err != nil {
		return nil // impossible: newIndex has added the index
	}
	return found
}
