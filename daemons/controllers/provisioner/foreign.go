package provisioner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type foreignExpansion struct {
	loop.Context
	loop.Loop
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

// NewForeign returns the controller that records an event on claims whose volumes another provisioner has to expand.
func NewForeign(c loop.Context) loop.Controller {
	claims, volumes := informers.PersistentVolumeClaims(c.Informers), informers.PersistentVolumes(c.Informers)
	f := &foreignExpansion{Context: c, claims: claims.Lister(), volumes: volumes.Lister()}
	f.Loop = loop.Loop{Name: "persistentvolume-expander", QueueMetricName: "volume_expand", Context: c, Sync: f.sync,
		Synced: []cache.InformerSynced{claims.Informer().HasSynced, volumes.Informer().HasSynced}}
	c.OnChange(claims.Informer(), func(old, obj any) {
		before, _ := old.(*corev1.PersistentVolumeClaim)
		after, _ := obj.(*corev1.PersistentVolumeClaim)
		if before != nil && after != nil &&
			before.Spec.Resources.Requests.Storage().Cmp(*after.Spec.Resources.Requests.Storage()) < 0 {
			f.Add(after)
		}
	})
	return f
}

func (f *foreignExpansion) sync(_ context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	claim, err := f.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	v, err := f.volumes.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if NeedsForeignExpansion(claim, v) {
		f.Events.Event(claim, corev1.EventTypeNormal, "ExternalExpanding",
			"waiting for an external controller to expand this PVC")
	}
	return nil
}

// NeedsForeignExpansion reports whether a claim waits for another provisioner to expand its volume.
func NeedsForeignExpansion(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	return isBound(claim, v) && !directory.IsProvisioned(v) &&
		claim.Status.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) < 0
}
